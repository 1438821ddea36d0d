"""Nearly-kernel methods against the real training of quadratic models, order by order in ε."""

import numpy as np
import pytest
from scipy.optimize import minimize

from dynagram.errors import AccuracyError, InvalidValueError, NonFiniteError
from dynagram.theory.minimal_models import (
    SOLUTIONS,
    QuadraticModel,
    descend,
    effective_kernel,
    fit_nearly_kernel,
    flow,
    nearly_kernel_prediction,
    trained_kernel_prediction,
    trained_weights,
)
from dynagram.theory.minimal_models._nearly_kernel import descent_weights
from dynagram.theory.minimal_models._quadratic import first_order_outputs

TRAIN, ROWS, PARAMETERS = 3, 5, 7


def quadratic_model(epsilon, parameters=PARAMETERS, seed=0):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(ROWS, parameters)) / np.sqrt(parameters)
    psi = rng.normal(size=(ROWS, parameters, parameters)) / parameters
    return QuadraticModel(phi, psi + np.swapaxes(psi, 1, 2), epsilon)


Y = np.random.default_rng(1).normal(size=(TRAIN, 2))


def options(solution, model):
    largest = np.linalg.eigvalsh(model.kernel[:TRAIN, :TRAIN])[-1]
    return {"solution": solution, "eta": 0.8 / largest if solution == "gd" else None}


def predicted(model, y=Y, **how):
    return nearly_kernel_prediction(model.kernel, model.meta_kernel, y, **how)


@pytest.mark.parametrize("solution", [name for name in SOLUTIONS if name != "trained-kernel"])
def test_dual_form_is_the_feature_space_form(solution):
    model = quadratic_model(0.3)
    how = options(solution, model)
    by_features = first_order_outputs(model, trained_weights(model, Y, **how))
    np.testing.assert_allclose(predicted(model, **how), by_features, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(by_features[:TRAIN], Y, rtol=1e-10)


def ridge_outputs(model, y, strength):
    """The minimum of the ridge loss itself, by a quasi-Newton method with exact gradients."""
    part = QuadraticModel(model.features[:TRAIN], model.meta_features[:TRAIN], model.epsilon)
    columns = []
    for target in y.T:

        def loss(w, target=target):
            residual = part.outputs(w[:, None])[:, 0] - target
            gradient = part.effective_features(w[:, None])[0].T @ residual + strength * w
            return 0.5 * residual @ residual + 0.5 * strength * w @ w, gradient

        start = np.linalg.pinv(part.features) @ target
        found = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-11})
        columns.append(model.outputs(found.x[:, None]))
    return np.concatenate(columns, axis=1)


def span_outputs(model, y):
    """Newton's method with the Jacobian frozen at W = 0: stays in the span of the features."""
    phi = model.features[:TRAIN]
    W = np.zeros((model.features.shape[1], y.shape[1]))
    for _ in range(60):
        W = W - np.linalg.pinv(phi) @ (model.outputs(W)[:TRAIN] - y)
    return model.outputs(W)


def truth(solution, model, y):
    largest = np.linalg.eigvalsh(model.kernel[:TRAIN, :TRAIN])[-1]
    match solution:
        case "gd":
            return model.outputs(descend(model, y, eta=0.8 / largest).W)
        case "flow":
            return model.outputs(flow(model, y).W)
        case "span":
            return span_outputs(model, y)
        case "ridge":
            return ridge_outputs(model, y, 0.05)
        case _:
            return trained_kernel_prediction(model.kernel, model.meta_kernel, y)


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_what_is_left_is_of_second_order(solution):
    """Halving ε quarters the difference from what the training really gives."""
    errors, sizes = [], []
    for epsilon in (0.004, 0.002):
        model = quadratic_model(epsilon)
        how = options(solution, model)
        if solution == "ridge":
            how["regularisation"] = 0.05
        result = predicted(model, **how)[TRAIN:]
        errors.append(np.max(np.abs(truth(solution, model, Y)[TRAIN:] - result)))
        linear = predicted(quadratic_model(0.0), **how)[TRAIN:]
        sizes.append(np.max(np.abs(result - linear)))
    assert sizes[0] > 20 * errors[0] > 0.0  # the first order is seen
    assert errors[0] / errors[1] == pytest.approx(4.0, abs=0.2)


def test_a_small_step_tends_to_the_flow():
    model = quadratic_model(0.1)
    largest = np.linalg.eigvalsh(model.kernel[:TRAIN, :TRAIN])[-1]
    continuous = predicted(model, solution="flow")
    gaps = [
        np.max(np.abs(predicted(model, solution="gd", eta=eta / largest) - continuous))
        for eta in (1e-2, 5e-3)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(2.0, abs=0.02)


def test_the_limit_of_a_vanishing_ridge():
    """The minimum-norm interpolation has the A term that (11.132) lacks."""
    model = quadratic_model(0.01)
    limit = predicted(model, solution="ridge")
    small = predicted(model, solution="ridge", regularisation=1e-8)
    np.testing.assert_allclose(small, limit, atol=1e-6)
    span = predicted(model, solution="span")
    assert np.max(np.abs(limit - span)) > 1e-3


def test_all_solutions_agree_without_a_null_space():
    model = quadratic_model(0.2, parameters=TRAIN)
    results = [predicted(model, **options(solution, model)) for solution in SOLUTIONS]
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.1])
def test_the_printed_projectors(eta):
    """(11.135), (11.136): X_II by its defining equation and as a sum over steps; Z_B = ½ c c."""
    model = quadratic_model(0.1)
    k = model.kernel[:TRAIN, :TRAIN]
    eta = eta / np.linalg.eigvalsh(k)[-1]
    one = np.eye(TRAIN)
    operator = (
        np.einsum("ac,bd->abcd", k, one) + np.einsum("ac,bd->abcd", one, k)
        - eta * np.einsum("ac,bd->abcd", k, k)
    )  # fmt: skip
    X = np.linalg.inv(operator.reshape(TRAIN**2, -1)).reshape([TRAIN] * 4)
    if eta > 0:
        total, step = 0.0, np.eye(TRAIN) - eta * k
        power = np.eye(TRAIN)
        for _ in range(5000):
            total = total + eta * np.einsum("ac,bd->abcd", power, power)
            power = power @ step
        np.testing.assert_allclose(X, total, rtol=1e-8, atol=1e-10)
    inverse, y = np.linalg.inv(k), Y[:, 0]
    c = inverse @ y
    Xyy = np.einsum("abcd,c,d->ab", X, y, y)
    Z_A = np.outer(c, c) - Xyy @ inverse
    kappa, U = np.linalg.eigh(k)
    along = U.T @ y
    ours = U @ (descent_weights(kappa, eta) * np.outer(along, along)) @ U.T
    np.testing.assert_allclose(ours, Z_A, rtol=1e-9, atol=1e-11)
    Z_B = Z_A + 0.5 * eta * Xyy
    np.testing.assert_allclose(0.5 * (Z_B + Z_B.T), 0.5 * np.outer(c, c), rtol=1e-9, atol=1e-11)


def test_the_effective_kernel_after_training():
    """(11.138), the same for gradient descent (footnote 24): what is left is of order ε²."""
    errors = []
    for epsilon in (0.02, 0.01):
        model = quadratic_model(epsilon)
        how = options("gd", model)
        dual = fit_nearly_kernel(model.kernel[:TRAIN, :TRAIN], Y, **how).dual
        first = effective_kernel(model.kernel, model.meta_kernel[:, :, :TRAIN], dual)
        real = model.effective_kernel(descend(model, Y, eta=how["eta"]).W)
        assert np.max(np.abs(real - model.kernel)) > 10 * np.max(np.abs(real - first))
        errors.append(np.max(np.abs(real - first)))
    assert errors[0] / errors[1] == pytest.approx(4.0, abs=0.2)


def test_the_printed_trained_kernel_claim_fails_at_first_order():
    """(11.142) − (11.132) is ½ A k̃k̃yy, of order ε and not ε² (footnote 25)."""
    gaps = [
        np.max(
            np.abs(
                trained_kernel_prediction(model.kernel, model.meta_kernel, Y)
                - predicted(model, solution="span")
            )
        )
        for model in (quadratic_model(0.02), quadratic_model(0.01))
    ]
    assert gaps[0] / gaps[1] == pytest.approx(2.0, abs=0.1)


def test_identities_of_the_model():
    model, rng = quadratic_model(0.7), np.random.default_rng(3)
    W, step = rng.normal(size=(2, PARAMETERS, 2))
    z, features = model.outputs(W), model.effective_features(W)
    half = np.einsum("jap,pj->aj", model.features[None] + features, W)
    np.testing.assert_allclose(z, 0.5 * half, rtol=1e-12)  # (11.119)
    moved = z + np.einsum("jap,pj->aj", features, step)
    moved += 0.35 * np.einsum("apq,pj,qj->aj", model.meta_features, step, step)
    np.testing.assert_allclose(model.outputs(W + step), moved, rtol=1e-12)  # (11.106)
    mu = model.meta_kernel
    np.testing.assert_allclose(mu, np.swapaxes(mu, 1, 2), rtol=1e-12)


def test_a_start_away_from_zero_is_a_shift():
    model, start = quadratic_model(0.05), 0.3 * np.random.default_rng(4).normal(size=PARAMETERS)
    moved, z = model.around(start)
    W = np.random.default_rng(5).normal(size=(PARAMETERS, 1))
    np.testing.assert_allclose(
        z[:, None] + moved.outputs(W), model.outputs(W + start[:, None]), rtol=1e-12
    )
    y, eta = Y[:, :1], 0.5 / np.linalg.eigvalsh(moved.kernel[:TRAIN, :TRAIN])[-1]
    result = z[:, None] + predicted(moved, y - z[:TRAIN, None], solution="gd", eta=eta)
    real = z[:, None] + moved.outputs(descend(moved, y - z[:TRAIN, None], eta=eta).W)
    np.testing.assert_allclose(result, real, atol=0.05**2 * 20)


# --- bad input --------------------------------------------------------------------------------


def repeated():
    model = quadratic_model(0.01)
    rows = [0, 1, 2, 0, 3]
    return QuadraticModel(model.features[rows], model.meta_features[rows], model.epsilon)


def test_repeated_inputs_give_the_flagged_minimum_norm_answer():
    model, y = repeated(), np.concatenate([Y, Y[:1]])
    for solution in ("flow", "span", "ridge", "trained-kernel"):
        fit = fit_nearly_kernel(model.kernel[:4, :4], y, solution=solution)
        assert fit.minimum_norm
        assert fit.rank == 3
    eta = 0.3 / np.linalg.eigvalsh(model.kernel)[-1]
    result = predicted(model, y, solution="gd", eta=eta)
    real = model.outputs(descend(model, y, eta=eta).W)
    np.testing.assert_allclose(result, real, atol=1e-3)
    once = predicted(quadratic_model(0.01), solution="span")
    np.testing.assert_allclose(predicted(model, y, solution="span")[4], once[3], rtol=1e-9)


def test_contradicting_targets_are_refused_and_ridge_takes_them():
    model, y = repeated(), np.concatenate([Y, Y[:1] + 1.0])
    with pytest.raises(InvalidValueError, match="repeated inputs with different targets"):
        predicted(model, y, solution="flow")
    regular = predicted(model, y, solution="ridge", regularisation=0.1)
    assert np.all(np.isfinite(regular))
    with pytest.raises(AccuracyError, match="cannot be fitted"):
        descend(model, y, eta=0.1, max_steps=200)


def test_steps_above_the_limit_are_refused():
    model = quadratic_model(0.01)
    largest = np.linalg.eigvalsh(model.kernel[:TRAIN, :TRAIN])[-1]
    with pytest.raises(InvalidValueError, match="diverges from 2/κ_max"):
        predicted(model, solution="gd", eta=2.0001 / largest)
    with pytest.raises(NonFiniteError, match="above 2/κ_max"):
        descend(quadratic_model(0.0), Y, eta=2.5 / largest)


def test_bad_arguments():
    model = quadratic_model(0.01)
    for how, message in (
        ({"solution": "newton"}, "expected one of gd, flow"),
        ({"solution": "gd"}, "needs a step size"),
        ({"solution": "flow", "eta": 0.1}, "only solution 'gd'"),
        ({"solution": "gd", "eta": -0.1}, "must be > 0"),
        ({"solution": "span", "regularisation": 0.1}, "only solution 'ridge'"),
    ):
        with pytest.raises(InvalidValueError, match=message):
            predicted(model, **how)
    with pytest.raises(InvalidValueError, match="largest eigenvalue"):
        fit_nearly_kernel(np.zeros((2, 2)), np.zeros((2, 1)), solution="span")
    with pytest.raises(InvalidValueError, match="must be finite"):
        fit_nearly_kernel(np.full((1, 1), np.nan), np.ones((1, 1)), solution="span")
    with pytest.raises(InvalidValueError, match="rows of y"):
        fit_nearly_kernel(np.eye(2), np.ones((3, 1)), solution="span")
    with pytest.raises(InvalidValueError, match="without parameters"):
        trained_weights(model, Y, solution="trained-kernel")
    with pytest.raises(InvalidValueError, match="not symmetric"):
        QuadraticModel(np.eye(2), np.arange(8.0).reshape(2, 2, 2), 0.1)
    with pytest.raises(InvalidValueError, match="say how long"):
        flow(repeated(), np.concatenate([Y, Y[:1]]))
