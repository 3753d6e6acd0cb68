from __future__ import annotations

import json
import math
import random
import time

import pytest

import wengert as wg
from wengert.debug.benchmark_result import BenchmarkResult
from wengert.debug.significance import compare_samples, interval_of_median

FEW = wg.BenchmarkConfig(num_warmup=1, num_iterations=8, calls_per_sample=1)


def _spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_what_a_run_tells():
    x = wg.ones((128, 128))
    r = wg.PerformanceBenchmark(FEW).run("product", lambda: x @ x)
    assert len(r.samples) == 8
    assert r.best <= r.median <= r.p95 <= max(r.samples)
    assert r.interval[0] <= r.median <= r.interval[1]
    assert r.throughput_ops_per_sec == pytest.approx(1e3 / r.median)
    assert 128 * 128 * 4 <= r.peak_bytes < 2**20
    assert "product" in str(r)


def test_short_functions_are_called_many_times_per_sample():
    r = wg.PerformanceBenchmark(wg.BenchmarkConfig(num_warmup=0, num_iterations=2)).run("nothing", lambda: None)
    assert r.calls_per_sample > 50
    assert r.median < 0.01


def test_calls_are_counted():
    calls = []
    config = wg.BenchmarkConfig(num_warmup=3, num_iterations=5, calls_per_sample=2, measure_memory=False)
    wg.PerformanceBenchmark(config).run("f", lambda: calls.append(1))
    assert len(calls) == 3 + 5 * 2


def test_what_is_not_asked_for_is_not_there():
    config = wg.BenchmarkConfig(
        num_iterations=3, measure_throughput=False, measure_memory=False, statistical_analysis=False
    )
    r = wg.PerformanceBenchmark(config).run("f", lambda: None)
    assert r.throughput_ops_per_sec is None
    assert r.peak_bytes is None
    assert r.interval is None


def test_start_and_end_are_one_sample():
    b = wg.PerformanceBenchmark()
    for k in range(3):
        b.start_benchmark("sum")
        y = wg.ones((1000,)).sum()
        r = b.end_benchmark("sum")
        assert len(r.samples) == k + 1
    assert y.item() == 1000.0
    assert r.peak_bytes >= 4000
    with pytest.raises(wg.ArgumentError, match="was not started"):
        b.end_benchmark("sum")
    b.start_benchmark("sum")
    with pytest.raises(wg.ArgumentError, match="started already"):
        b.start_benchmark("sum")


def test_two_functions_that_differ():
    b = wg.PerformanceBenchmark(wg.BenchmarkConfig(num_warmup=1, num_iterations=60, calls_per_sample=1))
    b.run_in_turns({"short": lambda: _spin(2e-4), "long": lambda: _spin(6e-4)})
    found = b.compare("short", "long")
    assert found.different
    assert found.ratio > 1.5
    assert "long is" in str(found) and "slower than short" in str(found)
    assert "faster than long" in str(b.compare("long", "short"))
    with pytest.raises(wg.ArgumentError, match="there is no benchmark 'other'; there are short, long"):
        b.compare("short", "other")


@pytest.mark.parametrize("in_turns", [True, False])
def test_a_benchmark_rarely_differs_from_itself(in_turns):
    """200 times, with the noise of a computer: a drift that both see, neighbours that resemble each other, and jumps."""
    random.seed(1)
    called = 0
    for _ in range(200):
        level, series = 0.0, ([], [])
        for k in range(200):
            level = 0.95 * level + random.gauss(0, 0.02)
            if in_turns:
                drift = 0.1 * math.sin(k / 40)
                for samples in series:
                    samples.append(math.exp(drift + level + random.gauss(0, 0.05)) + random.expovariate(20))
            else:
                series[k % 2].append(math.exp(random.gauss(0, 0.05)) + random.expovariate(20))
        called += compare_samples(*series, ("a", "a again"), in_turns=in_turns).different
    assert called <= 10


def _disturbed(rng, n, factor):
    """Times of a computer that does something else now and then: one in twenty takes many times as long."""
    times = [math.exp(rng.gauss(0, 0.05)) * factor + rng.expovariate(20) for _ in range(n)]
    return [t * rng.uniform(2, 30) if rng.random() < 0.05 else t for t in times]


@pytest.mark.parametrize("in_turns", [True, False])
@pytest.mark.parametrize("n", [20, 40, 100])
def test_outliers_neither_hide_a_difference_nor_make_one(n, in_turns):
    rng = random.Random(n)

    def called(factor):
        pairs = [(_disturbed(rng, n, 1.0), _disturbed(rng, n, factor)) for _ in range(200)]
        return sum(compare_samples(*pair, ("a", "b"), in_turns=in_turns).different for pair in pairs)

    assert called(1.0) <= 10
    assert called(2.0) >= 195


def test_results_in_notebooks():
    b = wg.PerformanceBenchmark(FEW)
    assert b._repr_html_() == "nothing has been measured yet"
    b.run("a < b", lambda: None)
    html = b._repr_html_()
    assert "a &lt; b" in html and "<svg" in html and "calls/s" in html
    assert b.results["a < b"]._repr_html_() == html


def test_a_real_benchmark_does_not_differ_from_itself():
    """The same function measured against itself, on this machine, as it is: 200 comparisons."""
    x = wg.ones((16, 16))
    config = wg.BenchmarkConfig(num_warmup=1, num_iterations=40, calls_per_sample=2, measure_memory=False)
    called = 0

    def f():  # one function: of two with the same text, the later one is 2 % slower here, where a call takes 0.2 µs
        wg.tanh(x)

    for _ in range(200):
        b = wg.PerformanceBenchmark(config)
        b.run_in_turns({"a": f, "b": f})
        called += b.compare("a", "b").different
    assert called <= 10


def test_too_few_samples_tell_nothing():
    found = compare_samples([1.0, 1.1], [5.0, 5.1], ("a", "b"), in_turns=True)
    assert not found.different
    assert "too few samples" in str(found)


def test_the_interval_of_a_median_covers_it():
    random.seed(0)
    covered = 0
    for _ in range(300):
        low, high = interval_of_median([random.expovariate(1.0) for _ in range(40)])
        covered += low <= math.log(2) <= high
    assert covered >= 280


def test_json_and_regressions(tmp_path):
    path = tmp_path / "baseline.json"
    b = wg.PerformanceBenchmark(wg.BenchmarkConfig(num_iterations=40))
    random.seed(0)
    b.results["step"] = BenchmarkResult("step", [1.0 + random.random() / 20 for _ in range(100)], 1, 1000)
    b.results["gone"] = BenchmarkResult("gone", [1.0] * 20, 1, None)
    b.save(path)
    assert json.loads(path.read_text())["results"][0]["median"] == b.results["step"].median
    now = wg.PerformanceBenchmark()
    now.results["step"] = BenchmarkResult("step", [1.3 + random.random() / 20 for _ in range(100)], 1, 1000)
    report = now.check_regression(path)
    assert not report
    assert "slower: step (now) is" in str(report)
    assert "not measured: gone" in str(report)
    assert now.check_regression(path, tolerance=0.5)
    now.results["step"] = b.results["step"]
    assert now.check_regression(path)


def test_files_that_cannot_be_written_or_read(tmp_path):
    b = wg.PerformanceBenchmark()
    with pytest.raises(wg.ArgumentError, match="cannot write"):
        b.save(tmp_path / "no" / "such" / "folder.json")
    with pytest.raises(wg.LoadError, match="cannot read the baseline"):
        b.check_regression(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("[1, 2]")
    with pytest.raises(wg.LoadError, match="holds no results"):
        b.check_regression(tmp_path / "text.json")


def test_arguments():
    with pytest.raises(wg.ArgumentError, match="num_iterations must be an integer of at least 1, got 0"):
        wg.BenchmarkConfig(num_iterations=0)
    with pytest.raises(wg.ArgumentError, match="takes a function, got int"):
        wg.PerformanceBenchmark().run("f", 3)
    with pytest.raises(wg.ArgumentError, match="between 0 and 100"):
        BenchmarkResult("f", [1.0]).percentile(101)


def test_an_exception_of_the_function_is_the_callers():
    def fails():
        raise KeyError("x")

    with pytest.raises(KeyError):
        wg.PerformanceBenchmark(FEW).run("fails", fails)


def test_a_difference_that_does_not_count_is_told_from_chance():
    first = [1.0 + k % 5 / 1000 for k in range(100)]
    second = [1.05 * x for x in first]
    found = compare_samples(first, second, ("a", "b"), in_turns=False, smallest=0.1)
    assert not found.different
    assert "differ by 5.0%, too little to count (up to 10% does not)" in str(found)
    assert "beyond chance" in str(compare_samples(first, first, ("a", "b"), in_turns=False))
    with pytest.raises(wg.ArgumentError, match="must be at least 0, got -1"):
        compare_samples(first, second, ("a", "b"), in_turns=False, smallest=-1)
