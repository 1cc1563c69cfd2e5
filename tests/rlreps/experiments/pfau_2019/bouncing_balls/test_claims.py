import numpy as np

from rlreps.experiments.pfau_2019.bouncing_balls.claims import compare

LINEAR = np.asarray([0.02, 0.02, 0.04, 0.04])
BEST = LINEAR / 2.0


def verdicts(learned=BEST, ritz=None, one_ball=(0.95, 0.95, 0.1, 0.1), all_balls=0.98, networks=2):
    def of_networks(values):
        scale = 1.0 + 0.001 * np.arange(networks)[:, None]
        return np.broadcast_to(np.asarray(values), (4,)) * scale

    claims = compare(
        of_networks(learned),
        of_networks(learned if ritz is None else ritz),
        LINEAR,
        BEST,
        of_networks(one_ball),
        of_networks(all_balls),
    )
    return [claim.holds for claim in claims]


def test_claims_hold_of_slow_ordered_features_of_positions():
    assert verdicts() == [True] * 5


def test_each_claim_can_fail():
    assert verdicts(all_balls=0.7)[0] is False
    assert verdicts(one_ball=(0.95, 0.6, 0.1, 0.1))[1] is False
    assert verdicts(one_ball=(0.95, 0.95, 0.9, 0.9))[2] is False
    assert verdicts(learned=LINEAR * 1.1)[3] is False
    assert verdicts(ritz=BEST * [0.9, 1.1, 1.0, 1.0])[4] is False


def test_features_no_slower_than_linear_ones_say_nothing_about_eigenfunctions():
    assert verdicts(learned=LINEAR * 1.1)[:3] == [None] * 3


def test_one_network_does_not_tell_whether_networks_are_slower():
    assert verdicts(networks=1)[3] is None
