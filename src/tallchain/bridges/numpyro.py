"""NumPyro models: as a posterior, data and a start for `fit` and `prepare`, and as a kernel of `numpyro.infer.MCMC`.

    fit = tallchain.fit(bridges.numpyro.posterior(model, x, y))

The entries of one plate are the rows. With the latent sites t = t(u), u without constraints,

    log p0(u)        = log densities of all sites outside of that plate, and log |det dt/du|
    log p(row i | u) = log densities of the observed sites in it, at entry i.

The sum over the rows and log p0(u) is minus NumPyro's potential energy.
"""

from tallchain.bridges.mcmc import TallChain, TallChainState
from tallchain.bridges.model import Bridged
from tallchain.bridges.model import bridged as posterior

__all__ = ["Bridged", "TallChain", "TallChainState", "posterior"]
