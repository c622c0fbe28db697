"""Ways to break the package, and the tests that should notice first.

``tests/test_mutants.py`` compares every pattern with the source and names those that no longer match.
"""

from __future__ import annotations

MUTANTS = {
    "trainers/look_ahead.py": [
        ("s / (self.lam * (t - 1))", "s / (self.lam * t)"),
        ("y * g < 1", "y * g <= 1"),
        ("y * g < 1", "-y * g < 1"),
        ("violating: np.ndarray = y * g < 1", "violating: np.ndarray = y * g < np.inf"),
        ("added * stretch.y[at] * stretch.K[at]", "added * stretch.K[at]"),
        ("added * stretch.y[at] * stretch.K[at]", "0 * added"),
        ("self._find_violation(stretch, t + 1)", "self._find_violation(stretch, t)"),
        ("state.moved, state.all_s = t, None", "state.moved = t"),
        ("            state.stretch = None\n", "            pass\n"),
        ("first, quiet = state.t + 1,", "first, quiet = state.t,"),
        ("t = min(until, stretch.violation", "t = min(stretch.violation"),
        ("stretch.seen.row(at)", "stretch.seen.row(0)"),
        ("added * stretch.y[at] * stretch.K[at]", "stretch.y[at] * stretch.K[at]"),
        ("                state.stretch.s = s\n", "                pass\n"),
        ("_find_violation(state.stretch, state.t + 1)", "_find_violation(state.stretch, first)"),
        ("state.t = t - 1  # what", "pass  # what"),
    ],
    "trainers/pegasos.py": [
        ("self.lam * state.t", "self.lam * (state.t - 1)"),
        ("np.array([i]), 1.0", "np.array([i]), 0.5"),
    ],
    "trainers/alg1.py": [
        ("-y_t / (lam * ", "y_t / (lam * "),
        ("(lam * (t - 1)) * y_s", "(lam * t) * y_s"),
        ("state.z.append(seen.z)", "state.z.append(F(seen.x))"),
        ("self.lam * state.t", "self.lam"),
        (", problem.shard())", ")"),
        ("Rows(shard(state.z.tensor)), Rows(shard(", "Rows((state.z.tensor)), Rows(("),
    ],
    "trainers/alg2.py": [
        ("-y[i] / (lam", "y[i] / (lam"),
        ("(lam * (t - 1)) * ay", "(lam * t) * ay"),
        ("        state.support = None\n", ""),
        ("by_z_j[at] += by_z_i", "pass"),
        ("[by_z_j, by_z_i]\n", "[by_z_j, 0 * by_z_i]\n"),
        ("if len(at):", "if False:"),
        ("processes.shard(np.arange(len(support)))", "np.arange(len(processes.shard(support)))"),
    ],
    "trainers/alg3.py": [
        ("/ (lam * (t - 1))", "/ (lam * t)"),
        ("y[A] * g < 1", "y[A] * g <= 1"),
        ("y[A] * g < 1", "y[A] * g > 1"),
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
        ("min(until, self.steps)", "min(until, self.steps + 1)"),
        ("until - self.steps", "until - self.steps - 1"),
        ('self.svm.restore(problem, F, saved["part_2"])', "self.svm.start(problem, F)"),
    ],
    "trainers/base.py": [
        ("lam * state.t", "lam"),
        ("i[self.alpha[i] == 0]", "i[self.alpha[i] >= 0]"),
        ("return j, alpha * problem.y[j]", "return j, problem.y[j]"),
        ("room[: self._filled] = self.tensor", "pass"),
        ("(t - 1) / self.last_theta_step", "t / self.last_theta_step"),
        ("(t - 1) / self.last_theta_step", "(t - 1) / self.total"),
        ("self._order[:s], self.alpha[j] = j,", "self._order[:s], self.alpha[j] = np.sort(j),"),
    ],
    "trainers/cross_entropy.py": [
        ("softplus(-y_A * z)", "softplus(y_A * z)"),
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
        ("part += K", "part[:] = K"),
        ("/ math.log(2)", ""),
        ("cls.gradient = Kernel.gradient", "pass"),
        ("GK @ (b - origin)", "GK @ b"),
    ],
    "models/feature_map.py": [
        ("self.fixed or is_modeless(network)", "True"),
        ("self.fixed or is_modeless(network)", "is_modeless(network)"),
        ("        self.network.eval()\n", ""),
        ("self.graph[rows]", "self.graph[:1]"),
        ("value = share.processes.sum(value)", "pass"),
        ("share.processes.sum_all(by_theta) if share", "by_theta if share"),
        ('self.dropout.set_state(saved["dropout"])', "pass"),
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
        ("self.predict(x).cpu() != (y.cpu() > 0)", "self.predict(x).cpu() == (y.cpu() > 0)"),
    ],
    "randomness.py": [
        ("replace=False", "replace=True"),
        ("self.k, block)", "self.k)"),
    ],
    "parallel/distributed.py": [
        ("j[self.rank :: self.size]", "j[:: self.size]"),
        ("whole[rank :: self.size] = share", "whole[: len(share)] = share"),
    ],
    "runs/train.py": [
        ("None if differences else checkpoint.best", "None"),
        ("checkpoint.exact and not differences", "not differences"),
        ("record(state)  # nothing", "pass  # nothing"),
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
    "trainers/look_ahead.py": [PAPER, EAGER, RESUME, CONTRACT],
    "trainers/pegasos.py": [PAPER],
    "trainers/alg1.py": [PAPER, EAGER, "tests/parallel"],
    "trainers/alg2.py": [PAPER, EAGER, "tests/parallel"],
    "trainers/alg3.py": [PAPER],
    "trainers/alg4.py": [PAPER, RESUME],
    "trainers/base.py": [PAPER, CONTRACT, RESUME],
    "trainers/cross_entropy.py": [BASELINE],
    "models/objectives.py": ["tests/models/test_objectives.py", PAPER],
    "models/kernels.py": ["tests/models/test_kernels.py"],
    "models/feature_map.py": ["tests/models", RESUME, EAGER, "tests/parallel"],
    "models/optimizers.py": ["tests/models/test_optimizers.py", RESUME],
    "models/networks.py": ["tests/models/test_networks.py", EAGER, "tests/parallel"],
    "models/nsvm.py": ["tests/models/test_nsvm.py"],
    "randomness.py": ["tests/test_randomness.py"],
    "parallel/distributed.py": ["tests/parallel/test_distributed.py"],
    "runs/train.py": ["tests/runs"],
    "storage/run_directory.py": ["tests/runs"],
    "storage/metrics_file.py": ["tests/runs"],
    "storage/tensor_file.py": ["tests/runs/test_model_file.py"],
}
"""The tests that look at a file most closely."""

REST = ["tests/models", "tests/test_randomness.py", "tests/storage", "tests/runs", "tests/trainers"]
REST += ["tests/report", "tests/parallel"]
"""The tests that are run where those have noticed nothing."""
