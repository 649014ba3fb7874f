"""What to cite for the methods that a fit used."""

from __future__ import annotations

import re

SEITA = (
    "Seita, D., Pan, X., Chen, H. and Canny, J. (2017). An efficient minibatch acceptance test for "
    "Metropolis-Hastings. Proceedings of the 33rd Conference on Uncertainty in Artificial Intelligence (UAI)."
)
PRADO = (
    "Prado, E., Nemeth, C. and Sherlock, C. (2024). Metropolis-Hastings with scalable subsampling. arXiv:2407.19602."
)
CORNISH = (
    "Cornish, R., Vanetti, P., Bouchard-Côté, A., Deligiannidis, G. and Doucet, A. (2019). Scalable "
    "Metropolis-Hastings for exact Bayesian inference with large datasets. Proceedings of the 36th International "
    "Conference on Machine Learning (ICML), PMLR 97."
)
ZHANG = (
    "Zhang, R., Cooper, A. F. and De Sa, C. (2020). Asymptotically optimal exact minibatch Metropolis-Hastings. "
    "Advances in Neural Information Processing Systems 33 (NeurIPS)."
)
CEPERLEY = (
    "Ceperley, D. M. and Dewing, M. (1999). The penalty method for random walks with uncertain energies. The Journal "
    "of Chemical Physics 110(20), 9812-9820."
)
KORATTIKARA = (
    "Korattikara, A., Chen, Y. and Welling, M. (2014). Austerity in MCMC land: cutting the Metropolis-Hastings budget. "
    "Proceedings of the 31st International Conference on Machine Learning (ICML), PMLR 32."
)
BARDENET_2014 = (
    "Bardenet, R., Doucet, A. and Holmes, C. (2014). Towards scaling up Markov chain Monte Carlo: an adaptive "
    "subsampling approach. Proceedings of the 31st International Conference on Machine Learning (ICML), PMLR 32."
)
MACLAURIN = (
    "Maclaurin, D. and Adams, R. P. (2014). Firefly Monte Carlo: exact MCMC with subsets of data. Proceedings of the "
    "30th Conference on Uncertainty in Artificial Intelligence (UAI)."
)
BARKER = (
    "Barker, A. A. (1965). Monte Carlo calculations of the radial distribution functions for a proton-electron plasma. "
    "Australian Journal of Physics 18(2), 119-134."
)
METROPOLIS = (
    "Metropolis, N., Rosenbluth, A. W., Rosenbluth, M. N., Teller, A. H. and Teller, E. (1953). Equation of state "
    "calculations by fast computing machines. The Journal of Chemical Physics 21(6), 1087-1092."
)
NEAL = (
    "Neal, R. M. (1998). Regression and classification using Gaussian process priors. In Bayesian Statistics 6, "
    "475-501. Oxford University Press."
)
COTTER = (
    "Cotter, S. L., Roberts, G. O., Stuart, A. M. and White, D. (2013). MCMC methods for functions: modifying old "
    "algorithms to make them faster. Statistical Science 28(3), 424-446."
)
HOFFMAN = (
    "Hoffman, M. D. and Gelman, A. (2014). The No-U-Turn sampler: adaptively setting path lengths in Hamiltonian Monte "
    "Carlo. Journal of Machine Learning Research 15, 1593-1623."
)
ROBERTS = (
    "Roberts, G. O. and Tweedie, R. L. (1996). Exponential convergence of Langevin distributions and their discrete "
    "approximations. Bernoulli 2(4), 341-363."
)
NEAL_2011 = (
    "Neal, R. M. (2011). MCMC using Hamiltonian dynamics. In Handbook of Markov Chain Monte Carlo, 113-162. Chapman "
    "and Hall/CRC."
)
ZHANG_AMAGOLD = (
    "Zhang, R., Cooper, A. F. and De Sa, C. (2020). AMAGOLD: amortized Metropolis adjustment for efficient stochastic "
    "gradient MCMC. Proceedings of the 23rd International Conference on Artificial Intelligence and Statistics "
    "(AISTATS), PMLR 108."
)
BARDENET_2017 = (
    "Bardenet, R., Doucet, A. and Holmes, C. (2017). On Markov chain Monte Carlo methods for tall data. Journal of "
    "Machine Learning Research 18(47), 1-43."
)
QUIROZ = (
    "Quiroz, M., Kohn, R., Villani, M. and Tran, M.-N. (2019). Speeding up MCMC by efficient data subsampling. Journal "
    "of the American Statistical Association 114(526), 831-843."
)
VEHTARI = (
    "Vehtari, A., Gelman, A., Simpson, D., Carpenter, B. and Bürkner, P.-C. (2021). Rank-normalization, folding, and "
    "localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16(2), 667-718."
)
PIIRONEN = (
    "Piironen, J. and Vehtari, A. (2017). Sparsity information and regularization in the horseshoe and other shrinkage "
    "priors. Electronic Journal of Statistics 11(2), 5018-5051."
)

OF_TESTS = {
    "MinibatchBarker": (SEITA,),
    "NormalBarker": (BARKER,),
    "MHSS": (PRADO,),
    "BinomialMHSS": (PRADO,),
    "ScalableMH": (CORNISH,),
    "TunaMH": (ZHANG,),
    "Penalty": (CEPERLEY,),
    "Combined": (CEPERLEY, SEITA),
    "Austere": (KORATTIKARA,),
    "Confidence": (BARDENET_2014,),
    "FireflyMC": (MACLAURIN,),
    "Barker": (BARKER,),
    "Metropolis": (METROPOLIS,),
}
OF_PROPOSALS = {
    "PCN": (NEAL, COTTER),
    "Langevin": (ROBERTS,),
    "Hamiltonian": (NEAL_2011,),
    "Amagold": (ZHANG_AMAGOLD,),
    "nuts": (HOFFMAN,),
    "hmc": (NEAL_2011,),
    "mala": (ROBERTS,),
}


def citations(
    test_name: str, proposal_name: str, *, has_surrogate: bool = False, has_horseshoe: bool = False
) -> tuple[str, ...]:
    """Return the references of the methods used, each once.

    Args:
        test_name: class of the acceptance test, such as "MHSS"; what follows in brackets does not matter.
        proposal_name: of the proposal, such as "PCN" or "Transition(algorithm='nuts')".
        has_surrogate: whether there were control variates.
        has_horseshoe: whether the coefficients had a horseshoe prior.
    """
    words = set(re.findall(r"\w+", f"{test_name.partition('(')[0]} {proposal_name}"))
    found = [each for table in (OF_TESTS, OF_PROPOSALS) for name, of in table.items() if name in words for each in of]
    found += [BARDENET_2017, QUIROZ] if has_surrogate else []
    found += [PIIRONEN] if has_horseshoe else []
    return tuple(dict.fromkeys([*found, VEHTARI]))
