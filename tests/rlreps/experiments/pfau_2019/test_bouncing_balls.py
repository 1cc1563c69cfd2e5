import dataclasses

import numpy as np
import pytest

from rlreps.experiments.pfau_2019 import bouncing_balls
from rlreps.experiments.pfau_2019.bouncing_balls import PRESETS
from rlreps.study import Frame

LINEAR = np.asarray([0.02, 0.02, 0.04, 0.04])
BEST = LINEAR / 2.0


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        ({}, [True] * 6),
        ({"mean_position": (0.95, 0.6, 0.0, 0.0)}, [False, *[True] * 5]),
        ({"one_ball": (0.95, 0.95, 0.1, 0.1)}, [True, False, *[True] * 4]),
        ({"all_balls": 0.7}, [True, True, False, *[True] * 3]),
        ({"velocity": (0.0, 0.0, 0.0, 0.2)}, [*[True] * 3, False, True, True]),
        ({"ritz": BEST * [0.9, 1.1, 1.0, 1.0]}, [*[True] * 5, False]),
        ({"learned": LINEAR * 1.1, "ritz": LINEAR * 1.1}, [*[True] * 4, False, True]),
        # What holds for one network and not for the other cannot be told.
        ({"other": {"mean_position": 0.5}}, [None, *[True] * 5]),
        ({"other": {"ritz": BEST * [0.9, 1.1, 1.0, 1.0]}}, [*[True] * 5, None]),
        # Goals alone are judged of what is not the paper's protocol.
        ({"config": {"steps": 500_000}}, [*[None] * 4, True, True]),
    ],
)
def test_claims_are_judged_three_valued(judge, change, verdicts):
    parts = {"learned": BEST, "ritz": BEST, "mean_position": (0.95, 0.9, 0.0, 0.0)}
    parts |= {"one_ball": (0.95, 0.95, 0.9, 0.3), "all_balls": 0.98, "velocity": 0.01, **change}
    config = dataclasses.replace(PRESETS["paper"], **parts.pop("config", {}))
    others = parts.pop("other", {})

    def rows(analysis, seed, **columns):
        return Frame.grid(columns, analysis=analysis, draw="test", seed=seed, feature=range(4))

    frames = [
        rows(analysis, None, eigenvalue=values)
        for analysis, values in ((bouncing_balls.PIXELS, LINEAR), (bouncing_balls.POSITIONS, BEST))
    ]
    for seed in range(6):
        own = parts | (others if seed else {})
        columns = {name: np.asarray(value) * (1.0 + 0.001 * seed) for name, value in own.items()}
        learned, ritz = columns.pop("learned"), columns.pop("ritz")
        frames.append(
            rows(bouncing_balls.DEEP, seed, eigenvalue=learned, of_the_span=ritz, **columns)
        )
    found = judge(bouncing_balls.EXPERIMENT, config, Frame.concat(frames))
    assert [claim.holds for claim in found] == verdicts


def test_the_paper_preset_is_the_papers_protocol(check_protocol):
    check_protocol(
        "bouncing-balls",
        {
            "num_features": 12,
            "frames": 2,
            "encoder.name": "block_sparse",
            "encoder.encoder.name": "convolutional",
            "encoder.encoder.channels": [32, 32, 32],
            "encoder.encoder.kernel_size": 5,
            "encoder.encoder.hidden": 128,
            "objective.name": "spin",
            "objective.averaging_rate": 0.01,
            "objective.masked": True,
            "objective.shifted": False,
            "objective.starts_at_identity": True,
            "optimizer.name": "rmsprop",
            "optimizer.learning_rate": 1e-6,
            "optimizer.schedule": "constant",
            "optimizer.decay": 0.999,
            # TensorFlow's of the time.
            "optimizer.initial_scale": 1.0,
            "optimizer.epsilon": 1e-10,
            "clips": 24,
            "clip_frames": 10,
            "num_frames": 200_000,
            "steps": 1_000_000,
        },
    )
    # Three balls, 64 x 64 pixels.
    video = bouncing_balls.VIDEO
    assert (video.num_balls, video.frame_size) == (3, 64)
    # 20,000 clips, of ten frames and nine inputs.
    source = PRESETS["paper"].source(PRESETS["paper"].num_frames)
    assert (source.num_clips, source.clip_frames) == (20_000, 10)
    assert PRESETS["paper"].rows == 24 * 9
