"""dNTK and ddNTKs of one network: forward equations, any function, symmetries, training steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Layer, Model
from dynagram.observables.tangents import (
    ddntk,
    ddntk_patterns,
    dntk,
    function_ddntk,
    function_dntk,
    ntk,
)
from dynagram.observables.tangents._ddntk import output_pairs

RATES = {"lambda_b": [0.5, 1.2, 0.3, 0.8], "lambda_W": [1.3, 0.6, 0.9, 1.1]}

SHARED = (3, 4, 5, 2)  # one compilation serves several tests


def network(sigma, widths, skip=0.0):
    rates = {name: values[: len(widths) - 1] for name, values in RATES.items()}
    return MLP(widths, sigma, C_b=0.3, C_W=1.6, skip=skip, **rates)


def drawn(net, getkey, samples):
    return net.draw(getkey()), jax.random.normal(getkey(), (samples, net.widths[0]))


def rate_tensor(net):
    rates = zip(net.lambda_b, net.lambda_W, net.widths[:-1], strict=True)
    return tuple(Layer(lambda_b, lambda_W / n) for lambda_b, lambda_W, n in rates)


def assert_close(found, expected, tolerance=1e-12):
    scale = np.max(np.abs(expected))
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


# --- the forward equations, for all neurons of a layer, in plain NumPy -----------------------


def einsum(equation, *operands):
    return np.einsum(equation, *operands, optimize=True)


def forward_equations(net, params, x):
    """Ĥ (8.12), dĤ (11.24), dd_I Ĥ (∞.174) and dd_II Ĥ (∞.175) of the output.

    Letters: samples a b c d, neurons i j k l above and p q r s below, for the digits 0 1 2 3 of
    dH and dd_I and 1 2 3 4 of dd_II. Samples come first in every array.
    """
    x = np.asarray(x)
    N, widths = len(x), net.widths
    H = net.lambda_b[0] + net.lambda_W[0] / widths[0] * x @ x.T
    H = H[:, :, None, None] * np.eye(widths[1])
    dH = np.zeros((N,) * 3 + (widths[1],) * 3)
    first = np.zeros((N,) * 4 + (widths[1],) * 4)
    second = np.zeros_like(first)
    preactivations = net.preactivations(params, x)
    for index in range(1, net.depth):
        z = np.asarray(preactivations[index - 1])
        s, s1, s2, s3 = (net.activation.values(z, order) for order in range(4))
        W = np.asarray(params[index].W)
        w, eye = net.lambda_W[index] / widths[index], np.eye(widths[index + 1])
        X = einsum("ip,ap->aip", W, s1)  # dz_i/dz_p at sample a
        signal = net.lambda_b[index] + w * s @ s.T
        new_H = signal[:, :, None, None] * eye + einsum("aip,bjq,abpq->abij", X, X, H)

        new_dH = einsum("ij,ap,bp,ckr,acpr->abcijk", eye, s1, s, X, H) * w
        new_dH += einsum("ik,ap,cp,bjq,abpq->abcijk", eye, s1, s, X, H) * w
        new_dH += einsum("ip,ap,bjq,ckr,abpq,acpr->abcijk", W, s2, X, X, H, H)
        new_dH += einsum("aip,bjq,ckr,abcpqr->abcijk", X, X, X, dH)

        # σ at sample b of the neuron of z_0, the other two samples c, d transported.
        inner = einsum("ap,acpr,adps->acdprs", s2, H, H) + einsum("ap,acdprs->acdprs", s1, dH)
        E = w * einsum("bp,ckr,dls,acdprs->abcdkl", s, X, X, inner)
        new_first = einsum("ij,abcdkl->abcdijkl", eye, E)
        new_first += einsum("ik,acdblj->abcdijkl", eye, E)
        new_first += einsum("il,adbcjk->abcdijkl", eye, E)
        local = einsum("ap,abcdpqrs->abcdpqrs", s1, first)
        local += einsum("ap,abcpqr,adps->abcdpqrs", s2, dH, H)
        local += einsum("ap,acdprs,abpq->abcdpqrs", s2, dH, H)
        local += einsum("ap,adbpsq,acpr->abcdpqrs", s2, dH, H)
        local += einsum("ap,abpq,acpr,adps->abcdpqrs", s3, H, H, H)
        new_first += einsum("ip,bjq,ckr,dls,abcdpqrs->abcdijkl", W, X, X, X, local)

        new_second = (
            w
            * w
            * einsum("ap,bq,cp,dq,abpq->abcd", s1, s1, s, s, H)[..., None, None, None, None]
            * einsum("ik,jl->ijkl", eye, eye)
        )
        new_second += w * einsum(
            "ij,ap,bp,ckr,dls,acpr,bdqs,pq->abcdijkl",
            eye,
            s1,
            s1,
            X,
            X,
            H,
            H,
            np.eye(widths[index]),
        )
        inner = einsum("bq,baqp,bdqs->badqps", s2, H, H) + einsum("bq,badqps->badqps", s1, dH)
        third = w * einsum("jq,dls,cp,ap,badqps->abcdjl", W, X, s, s1, inner)
        new_second += einsum("ik,abcdjl->abcdijkl", eye, third)
        new_second += einsum("jl,badcik->abcdijkl", eye, third)
        local = einsum("ap,bq,abcdpqrs->abcdpqrs", s1, s1, second)
        local += einsum("ap,bq,abpq,acpr,bdqs->abcdpqrs", s2, s2, H, H, H)
        local += einsum("ap,bq,bdqs,abcpqr->abcdpqrs", s1, s2, H, dH)
        local += einsum("ap,bq,acpr,badqps->abcdpqrs", s2, s1, H, dH)
        new_second += einsum("ip,jq,ckr,dls,abcdpqrs->abcdijkl", W, W, X, X, local)
        H, dH, first, second = new_H, new_dH, new_first, new_second
    return H, dH, first, second


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "widths"), [("tanh", (3, 4, 2)), ("gelu", (3, 4, 3, 2)), ("sin", (2, 3, 2, 4, 3))]
)
def test_forward_equations(sigma, widths, getkey):
    net = network(sigma, widths)
    params, x = drawn(net, getkey, 2)
    H, dH, first, second = forward_equations(net, params, x)
    assert_close(ntk(Model(net, params), x), H)
    assert_close(dntk(Model(net, params), x), dH)
    found = ddntk(Model(net, params), x)
    assert_close(found.first, first)
    assert_close(found.second, second)


# --- other ways to the same tensors -----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "widths", "skip"),
    [("tanh", SHARED, 0.0), ("tanh", (3, 4, 4, 2), 0.6), ("gelu", (3, 4, 4, 4, 2), [-0.7, 1.2])],
)
def test_network_and_function_agree(sigma, widths, skip, getkey):
    """Against nested forward derivatives of the whole output, skips included."""
    net = network(sigma, widths, skip)
    params, x = drawn(net, getkey, 2)
    rates = rate_tensor(net)
    of_function = jax.jit(lambda p: function_dntk(net.apply, p, x, rates))(params)
    assert_close(of_function, dntk(Model(net, params), x))
    of_function = jax.jit(lambda p: function_ddntk(net.apply, p, x, rates))(params)
    of_network = ddntk(Model(net, params), x)
    assert_close(of_function.first, of_network.first)
    assert_close(of_function.second, of_network.second)


def test_patterns_are_entries_of_the_whole(getkey):
    net = network("tanh", SHARED)
    params, x = drawn(net, getkey, 2)
    whole, patterns = ddntk(Model(net, params), x), ddntk_patterns(Model(net, params), x)
    i, j = output_pairs(2)
    assert_close(patterns.first_iijj, whole.first[..., i, i, j, j])
    assert_close(patterns.second_iijj, whole.second[..., i, i, j, j])
    assert_close(patterns.second_ijij, whole.second[..., i, j, i, j])
    assert_close(patterns.second_ijji, whole.second[..., i, j, j, i])


def test_explicit_derivatives_of_a_small_function(getkey):
    """Against the Hessian and the third derivatives themselves, which only a test may build."""
    size, x = 4, jax.random.normal(getkey(), (2, 3))
    params, rates = jax.random.normal(getkey(), (size,)), jnp.array([0.3, 1.0, 0.0, 2.0])

    def function(w, x):
        return jnp.stack([jnp.sin(x @ w[:3]) * w[3], jnp.exp(x[:, 0] * w[1]) * w[2]], axis=1)

    orders = [jax.jacfwd(lambda w: function(w, x))]
    for _ in range(2):
        orders.append(jax.jacfwd(orders[-1]))
    D1, D2, D3 = (np.asarray(jax.jit(derivative)(params)) for derivative in orders)
    v = D1 * np.asarray(rates)
    found = jax.jit(lambda w: function_dntk(function, w, x, rates))(params)
    assert_close(found, einsum("aimn,bjm,ckn->abcijk", D2, v, v))
    found = jax.jit(lambda w: function_ddntk(function, w, x, rates))(params)
    assert_close(found.first, einsum("aimno,bjm,ckn,dlo->abcdijkl", D3, v, v, v))
    expected = einsum("aimo,bjno,ckm,dln,o->abcdijkl", D2, D2, v, v, np.asarray(rates))
    assert_close(found.second, expected)


# --- symmetries, closed forms, training ------------------------------------------------------


def test_symmetries(getkey):
    net = network("tanh", SHARED)
    params, x = drawn(net, getkey, 2)
    dH, (first, second) = dntk(Model(net, params), x), ddntk(Model(net, params), x)
    assert_close(dH.transpose(0, 2, 1, 3, 5, 4), dH)
    assert_close(first.transpose(0, 2, 1, 3, 4, 6, 5, 7), first)
    assert_close(first.transpose(0, 1, 3, 2, 4, 5, 7, 6), first)
    assert_close(second.transpose(1, 0, 3, 2, 5, 4, 7, 6), second)
    # The exchange of 1 and 2 alone is no symmetry.
    swapped = second.transpose(1, 0, 2, 3, 5, 4, 6, 7)
    assert np.max(np.abs(swapped - second)) > 0.1 * np.max(np.abs(second))


def test_linear_network_with_one_hidden_layer(getkey):
    """z = W₂(W₁x + b₁) + b₂ is quadratic: dH, dd_II by hand, dd_I = 0."""
    net = MLP([3, 4, 2], "linear", C_b=0.2, C_W=1.0, lambda_b=[0.3, 0.7], lambda_W=[1.1, 0.6])
    params, x = drawn(net, getkey, 2)
    W, u = np.asarray(params[1].W), np.asarray(net.preactivations(params, x)[0])
    K = 0.3 + 1.1 / 3 * np.asarray(x @ x.T)  # H^(1)
    rate, eye = 0.6 / 4, np.eye(2)
    dH = rate * einsum("ij,bp,kp,ac->abcijk", eye, u, W, K)
    dH += rate * einsum("ik,cp,jp,ab->abcijk", eye, u, W, K)
    second = rate * rate * einsum("ik,jl,cp,dp,ab->abcdijkl", eye, eye, u, u, K)
    second += rate * einsum("ij,kp,lp,ac,bd->abcdijkl", eye, W, W, K, K)
    found = ddntk(Model(net, params), x)
    assert_close(dntk(Model(net, params), x), dH)
    assert_close(found.second, second)
    assert np.max(np.abs(found.first)) == 0.0


@pytest.mark.slow
def test_training_steps(getkey):
    """(∞.4), (∞.6), (∞.9), hence (11.9), (11.10): what is left has the next power of η."""
    net = network("tanh", SHARED)
    params, x = drawn(net, getkey, 2)
    target = jax.random.normal(getkey(), (2, 2))
    error = net.apply(params, x) - target
    H, dH, (first, second) = (f(Model(net, params), x) for f in (ntk, dntk, ddntk))

    def summed(tensor, equation):
        return jnp.einsum(equation, tensor, *[error] * (equation.count(",")))

    def of_output(eta):
        linear = -eta * summed(H, "abij,bj->ai")
        squared = eta**2 / 2 * summed(dH, "abcijk,bj,ck->ai")
        return linear, squared, -(eta**3) / 6 * summed(first, "abcdijkl,bj,ck,dl->ai")

    def of_ntk(eta):
        half = -eta * summed(dH, "abcijk,ck->abij")
        by_first = eta**2 / 2 * summed(first, "abcdijkl,ck,dl->abij")
        by_second = eta**2 * summed(second, "abcdijkl,ck,dl->abij")
        return half + half.transpose(1, 0, 3, 2), by_first + by_first.transpose(
            1, 0, 3, 2
        ) + by_second

    def of_dntk(eta):
        tilted = summed(second, "abcdijkl,dl->abcijk")
        straight = summed(first, "abcdijkl,dl->abcijk")
        return (-eta * (straight + tilted + tilted.transpose(0, 2, 1, 3, 5, 4)),)

    loss = lambda p: 0.5 * jnp.sum((net.apply(p, x) - target) ** 2)  # noqa: E731
    step = jax.tree.map(jnp.multiply, rate_tensor(net), jax.grad(loss)(params))
    observables = [(net.apply, of_output)]
    observables += [
        (lambda p, x, f=f: f(Model(net, p), x), change)
        for f, change in ((ntk, of_ntk), (dntk, of_dntk))
    ]
    for observable, predicted in observables:
        before = observable(params, x)
        rests = []
        for eta in (1e-3, 5e-4):
            moved = jax.tree.map(lambda p, s, eta=eta: p - eta * s, params, step)
            change, terms = observable(moved, x) - before, predicted(eta)
            left = [change]
            for term in terms:
                left.append(left[-1] - term)
            rests.append([float(jnp.linalg.norm(rest)) for rest in left])
        ratios = np.divide(*rests)
        np.testing.assert_allclose(ratios, 2.0 ** np.arange(1, len(ratios) + 1), rtol=0.05)


# --- sizes and refusals -----------------------------------------------------------------------


def largest_array(function, *arguments):
    def sizes(jaxpr):
        for equation in jaxpr.eqns:
            yield from (var.aval.size for var in equation.outvars if hasattr(var.aval, "size"))
            for inner in jaxprs_in_params(equation.params):
                yield from sizes(inner)

    return max(sizes(jax.make_jaxpr(function)(*arguments).jaxpr))


def test_nothing_of_the_size_of_a_hessian(getkey):
    net = network("tanh", (3, 40, 30, 2))
    params, x = drawn(net, getkey, 1)
    size = net.number_of_parameters
    for function in (function_dntk, function_ddntk):
        assert largest_array(lambda p, f=function: f(net.apply, p, x), params) <= 16 * size
    for function in (dntk, ddntk, ddntk_patterns):
        # Of the network, not even one direction per pair of outputs is written out.
        assert largest_array(lambda p, f=function: f(Model(net, p), x), params) <= size


def test_dtype_of_the_parameters_is_kept(getkey):
    net = network("tanh", (3, 4, 2))
    params, x = net.draw(getkey(), dtype="float32"), np.eye(3)
    model = Model(net, params)
    found = (dntk(model, x), *ddntk(model, x), *ddntk_patterns(model, x))
    assert {str(values.dtype) for values in found} == {"float32"}


def test_kinks(getkey):
    """The dNTK of a ReLU network is that of the linear regions; its ddNTK is refused."""
    net = network("relu", (3, 4, 2))
    params, x = drawn(net, getkey, 2)
    assert_close(dntk(Model(net, params), x), forward_equations(net, params, x)[1])
    for function in (ddntk, ddntk_patterns):
        with pytest.raises(InvalidValueError, match="step size behind the ddNTK .* σ' jumps"):
            function(Model(net, params), x)
