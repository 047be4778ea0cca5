"""numpy with as many BLAS threads as it likes, and pandas. Prints a line for each thing that worked."""

import io
import threading

import numpy
import pandas


def algebra():
    generator = numpy.random.default_rng(1)
    square = generator.random((400, 400))
    spd = square @ square.T + 400 * numpy.eye(400)
    assert numpy.allclose(numpy.linalg.solve(spd, spd @ numpy.ones(400)), 1)
    left, values, right = numpy.linalg.svd(square[:200, :100], full_matrices=False)
    assert numpy.allclose(left * values @ right, square[:200, :100])
    assert numpy.allclose(numpy.linalg.cholesky(spd) @ numpy.linalg.cholesky(spd).T, spd)
    assert numpy.linalg.eigvalsh(spd).min() > 0


def threads():
    results = []

    def work(seed):
        square = numpy.random.default_rng(seed).random((200, 200))
        results.append(numpy.allclose(square @ numpy.linalg.inv(square), numpy.eye(200), atol=1e-6))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [True] * 6


def files():
    numbers = numpy.arange(100_000, dtype="f8")
    numpy.save("numbers.npy", numbers)
    view = numpy.load("numbers.npy", mmap_mode="r")
    assert view[99_999] == 99_999 and float(view.sum()) == numbers.sum()
    mapped = numpy.memmap("mapped", dtype="i4", mode="w+", shape=(1000,))
    mapped[:] = 7
    mapped.flush()
    assert numpy.fromfile("mapped", dtype="i4").sum() == 7000
    del mapped, view


def frames():
    frame = pandas.DataFrame({"team": list("abab") * 500, "points": range(2000)})
    text = frame.to_csv(index=False)
    again = pandas.read_csv(io.StringIO(text))
    assert again.equals(frame)
    totals = again.groupby("team")["points"].agg(["sum", "mean", "count"])
    assert totals.loc["a", "sum"] == sum(range(0, 2000, 2))
    assert list(totals["count"]) == [1000, 1000]
    wide = again.assign(block=again.index // 500).pivot_table("points", "block", "team", "sum")
    assert wide.shape == (4, 2)
    merged = again.merge(totals.reset_index(), on="team")
    assert len(merged) == 2000 and not merged.isna().any().any()
    days = pandas.date_range("2024-01-01", periods=366, freq="D", tz="Europe/Berlin")
    assert pandas.Series(1, index=days).resample("M").sum().tolist()[1] == 29
    frame.to_csv("frame.csv.gz")
    assert pandas.read_csv("frame.csv.gz").shape == (2000, 3)


for step in (algebra, threads, files, frames):
    step()
    print(step.__name__, flush=True)
