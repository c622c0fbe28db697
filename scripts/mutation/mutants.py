"""Ways to break the package, and the tests that should notice first.

``tests/test_mutants.py`` compares every pattern with the source and names those that no longer match.
"""

from __future__ import annotations

MUTANTS = {
    "tasks.py": [
        ("y * g < 1", "y * g <= 1"),
        ("y * g < 1", "-y * g < 1"),
        ("y * g < 1", "y * g < np.inf"),
        ("(g >= 0) * 2 - 1", "(g > 0) * 2 - 1"),
        ("(y != decisions).sum()", "(y == decisions).sum()"),
        ("labels == classes[1], 1.0, -1.0", "labels == classes[1], -1.0, 1.0"),
        ("zip(self.classes, (-1, 1)", "zip(self.classes, (1, -1)"),
    ],
    "trainers/look_ahead.py": [
        ("s / (self.lam * (t - 1))", "s / (self.lam * t)"),
        ("added * window.y[at] * window.K[at]", "added * window.K[at]"),
        ("added * window.y[at] * window.K[at]", "0 * added"),
        ("added * window.y[at] * window.K[at]", "window.y[at] * window.K[at]"),
        ("self._find_violation(problem, window, t + 1)", "self._find_violation(problem, window, t)"),
        ("state.scores.get(state.version, compute)", "state.scores.get(0, compute)"),
        ("            state.window = None\n", "            pass\n"),
        ("first, quiet = state.t + 1,", "first, quiet = state.t,"),
        ("t = min(until, window.violation", "t = min(window.violation"),
        ("window.evaluation.row(at)", "window.evaluation.row(0)"),
        ("            window.s = s\n", "            pass\n"),
        ("_find_violation(problem, window, state.t + 1)", "_find_violation(problem, window, first)"),
        ('NotFiniteError("the decision value g", t)', 'NotFiniteError("the decision value g", until)'),
    ],
    "trainers/derived.py": [
        ("self._value is None or self._version != version", "self._value is None"),
        ("self._value, self._version = compute(), version", "self._value = compute()"),
    ],
    "trainers/pegasos.py": [
        ("self.lam * state.t", "self.lam * (state.t - 1)"),
        ("np.array([i]), 1.0", "np.array([i]), 0.5"),
    ],
    "trainers/alg1.py": [
        ("-y_t / (lam * ", "y_t / (lam * "),
        ("(lam * (t - 1)) * y_s", "(lam * t) * y_s"),
        ("state.z.append(at_i.z)", "state.z.append(F(at_i.x))"),
        ("self.lam * state.t", "self.lam"),
        (", problem.shard())", ")"),
        ("Rows(shard(state.z.tensor)), Rows(shard(", "Rows((state.z.tensor)), Rows(("),
        ("objective, t, self.last", "objective, t + 1, self.last"),
    ],
    "trainers/alg2.py": [
        ("-y[i] / (lam", "y[i] / (lam"),
        ("(lam * (t - 1)) * ay", "(lam * t) * ay"),
        ("state.support.get(state.version, compute)", "state.support.get(0, compute)"),
        ("by_z_j[at] += by_z_i", "pass"),
        ("[by_z_j, by_z_i]\n", "[by_z_j, 0 * by_z_i]\n"),
        ("if len(at):", "if False:"),
        ("processes.shard(np.arange(len(support)))", "np.arange(len(processes.shard(support)))"),
    ],
    "trainers/alg3.py": [
        ("/ (lam * (t - 1))", "/ (lam * t)"),
        ("task.violates(*y_g)", "task.violates(-y_g[0], y_g[1])"),
        ("add(violating, 1 / k)", "add(violating, 1.0)"),
        ("add(violating, 1 / k)", "add(A_t, 1 / k)"),
        ("sampler(1), 1 / self.k", "sampler(1), 1.0"),
        ("mu * norm - aligned", "norm - aligned"),
        ("mu * slope_norm - slope_aligned", "slope_norm - slope_aligned"),
        ("mu * slope_norm - slope_aligned", "mu * slope_norm + slope_aligned"),
        ("[2 * K.gradient", "[K.gradient"),
    ],
    "trainers/alg4.py": [
        ("L(1.0,", "L(-1.0,"),
        ("[2 * slope_loss", "[slope_loss"),
        ("min(until, self.last_theta_step)", "min(until, self.last_theta_step + 1)"),
        ("state.part_2, until - self", "state.part_2, until - 1 - self"),
        ("self.last_theta_step + error.step", "error.step"),
        ('self.svm.restore(problem, F, saved["part_2"])', "self.svm.start(problem, F)"),
    ],
    "trainers/coefficients.py": [
        ("lam * state.t", "lam"),
        ("i[self.alpha[i] == 0]", "i[self.alpha[i] >= 0]"),
        ("return j, alpha * problem.y[j]", "return j, problem.y[j]"),
        ("self._order[:s], self.alpha[j] = j,", "self._order[:s], self.alpha[j] = np.sort(j),"),
    ],
    "trainers/rows.py": [
        ("room[: self._filled] = self.tensor", "pass"),
    ],
    "trainers/cross_entropy.py": [
        ("softplus(-margin)", "softplus(margin)"),
        ("[-y_A * torch.sigmoid", "[y_A * torch.sigmoid"),
        ("/ self.k]", "]"),
    ],
    "models/objectives.py": [
        ("outer(y, y) / len(y)", "outer(y, y)"),
        ("U - value * direction", "U + value * direction"),
        ("outer(ay, ay) / torch", "outer(alpha, alpha) / torch"),
        ("(beta - gamma) ** 2,", "(beta - gamma).abs(),"),
        ("-2 * (beta - gamma)", "2 * (beta - gamma)"),
        ("-beta * gamma,", "beta * gamma,"),
    ],
    "models/kernels.py": [
        ("return 2 * gamma * (GK", "return gamma * (GK"),
        ("2 * gamma * GK @ (b - a)", "2 * gamma * GK @ b"),
        ("(self.degree - 1)", "self.degree"),
        ("sums_block += K", "sums_block[:] = K"),
        ("/ math.log(2)", ""),
        ("cls.gradient = Kernel.gradient", "pass"),
        ("GK @ (b - origin)", "GK @ b"),
        (".clamp_min_(0)", ""),
        ("torch.finfo(z.dtype).tiny", "1e-6"),
    ],
    "models/feature_map.py": [
        ("not self.fixed and (augment is not None or not is_modeless(network))", "False"),
        ("not self.fixed and (augment is not None or not is_modeless(network))", "not is_modeless(network)"),
        ("augment is not None or not is_modeless(network)", "not is_modeless(network)"),
        ("        self.network.eval()\n", ""),
        ("self.graph[rows]", "self.graph[:1]"),
        ("value = shard.processes.sum(value)", "pass"),
        ("shard.processes.sum_all(by_theta) if shard", "by_theta if shard"),
        ("else by_theta, (t - 1) / T", "else by_theta, t / T"),
        ('_set_state(self.dropout, saved["dropout"]', "_set_state(self.dropout, self.dropout.get_state()"),
        ('self.theta_steps = saved["theta_steps"]', "pass"),
    ],
    "models/optimizers.py": [
        ("if gradient.stride() == p.stride()", "if True"),
        ("self.settings.rate(progress)", "self.settings.lr"),
        ("(1.0 + math.cos", "(1.0 - math.cos"),
        ("momentum=self.settings.momentum", "momentum=0.0"),
        ("weight_decay=self.settings.weight_decay", "weight_decay=0.0"),
        ('self.momenta = [*_loaded(self.parameters, saved["momenta"])]', "pass"),
    ],
    "models/networks.py": [
        ("keep[mine]", "keep[: len(x)]"),
        ("module.p == 0", "True"),
        (".add_(down[..., ::2])", ""),
    ],
    "models/nsvm.py": [
        ("/ self.scale", "/ 1"),
        ("self.alpha * self.y", "self.alpha"),
        ("self.task.decide(self.decision_function(x))", "self.task.decide(-self.decision_function(x))"),
    ],
    "randomness.py": [
        ("replace=False", "replace=True"),
        ("self.k, block)", "self.k)"),
    ],
    "parallel/distributed.py": [
        ("j[self.rank :: self.size]", "j[:: self.size]"),
        ("whole[rank :: self.size] = shard", "whole[: len(shard)] = shard"),
    ],
    "runs/callbacks.py": [
        ("None if changes else checkpoint.best", "None"),
        ("checkpoint.bitwise and not changes", "not changes"),
        ("record(state)  # raises", "pass  # raises"),
        ("score > self.best[0]", "score >= self.best[0]"),
        ("self.failure = error", "raise"),
    ],
    "runs/checkpoint.py": [
        ("was.get(key) != now.get(key)", "False"),
        ("0 <= state.t == checkpoint.step <= trainer.total", "True"),
        ("RENAMED.get(key, key)", "key"),
    ],
    "runs/loop.py": [
        ("diverged(error.step, error.quantity)", "diverged(state.t, error.quantity)"),
        ("if any(answers):", "if all(answers):"),
        ("        state.tally.clear()\n", "        pass\n"),
        ("means=state.t % log_every == 0 or", "means=True or"),
    ],
    "storage/run_directory.py": [
        ("last.replace(previous)", "last.unlink()"),
    ],
    "storage/metrics_file.py": [
        ("        self._file.truncate(at.bytes)\n", ""),
        ("            self._file.truncate(self._bytes)\n", ""),
    ],
    "storage/tensor_file.py": [
        ("if _checksum(file, self.digest) != self.digest:", "if False:"),
        ("_expect(total == room", "_expect(total <= room"),
    ],
}
"""For each file below nsvm_cli/: what stands there (the first of it counts), and what takes its place."""

PAPER, EAGER, CONTRACT, RESUME, BASELINE = (
    f"tests/trainers/test_{name}.py"
    for name in ("against_paper", "against_eager", "contract", "resume", "cross_entropy")
)
FIRST = {
    "tasks.py": ["tests/test_tasks.py", PAPER],
    "trainers/look_ahead.py": [PAPER, EAGER, RESUME, CONTRACT],
    "trainers/derived.py": ["tests/trainers/test_derived.py", EAGER],
    "trainers/pegasos.py": [PAPER],
    "trainers/alg1.py": [PAPER, EAGER, "tests/parallel"],
    "trainers/alg2.py": [PAPER, EAGER, "tests/parallel"],
    "trainers/alg3.py": [PAPER],
    "trainers/alg4.py": [PAPER, RESUME],
    "trainers/coefficients.py": [PAPER, CONTRACT, RESUME],
    "trainers/rows.py": [PAPER, EAGER],
    "trainers/cross_entropy.py": [BASELINE],
    "models/objectives.py": ["tests/models/test_objectives.py", PAPER],
    "models/kernels.py": ["tests/models/test_kernels.py"],
    "models/feature_map.py": ["tests/models", RESUME, EAGER, "tests/parallel"],
    "models/optimizers.py": ["tests/models/test_optimizers.py", RESUME],
    "models/networks.py": ["tests/models/test_networks.py", EAGER, "tests/parallel"],
    "models/nsvm.py": ["tests/models/test_nsvm.py"],
    "randomness.py": ["tests/test_randomness.py"],
    "parallel/distributed.py": ["tests/parallel/test_distributed.py"],
    "runs/callbacks.py": ["tests/runs/test_train.py"],
    "runs/checkpoint.py": ["tests/runs/test_earlier_versions.py", "tests/runs/test_train.py"],
    "runs/loop.py": [RESUME, "tests/runs/test_train.py"],
    "storage/run_directory.py": ["tests/runs"],
    "storage/metrics_file.py": ["tests/runs"],
    "storage/tensor_file.py": ["tests/runs/test_model_file.py"],
}
"""The tests that look at a file most closely."""

REST = [
    "tests/models",
    "tests/test_randomness.py",
    "tests/test_tasks.py",
    "tests/storage",
    "tests/runs",
    "tests/trainers",
]
REST += ["tests/report", "tests/parallel"]
"""The tests that are run where those have noticed nothing."""
