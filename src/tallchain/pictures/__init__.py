"""Pictures (need `matplotlib`), in one style; drawn without pyplot, so that no backend or global state is touched."""
