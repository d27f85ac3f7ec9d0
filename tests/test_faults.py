"""One of the faults that `python -m benchmarks.faults` injects by the dozen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks import faults

pytestmark = [pytest.mark.slow, pytest.mark.machine]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> faults.Rows:
    rows, _ = faults.undisturbed(tmp_path_factory.mktemp("undisturbed"), faults.TABLE)
    return rows


@pytest.mark.parametrize(("fault", "moment"), [("power cut", "write")])
def test_the_same_command_goes_on(
    tmp_path: Path, truth: faults.Rows, fault: str, moment: str
) -> None:
    for seed in range(5):  # a moment may be missed
        chance, place = random.Random(seed), tmp_path / str(seed)
        place.mkdir()
        found = faults.inject(fault, moment, place, None, truth, chance)
        if not found.missed:
            assert found.bad == []
            return
    pytest.fail("the moment never came")


def test_every_fault_has_moments_that_come() -> None:
    assert {moment for _, moments in faults.FAULTS.values() for moment in moments} == set(
        faults.MOMENTS
    )
    assert len({name for name, _ in faults.draw(len(faults.FAULTS), random.Random(1))}) >= 30
