"""What neurons and inputs know of each other, and how deep a network of a given width may be."""

from dynagram.networks import MLP
from dynagram.theory import frozen_kernels
from dynagram.theory.information import (
    ScaleMixture,
    gaussian_information,
    mutual_information,
    optimal_aspect_ratio,
    optimal_skip,
)

print("Two neurons of one layer share information because the variance they have in common")
print("differs from draw to draw; x = V/(n G²) is its relative variance. In nats:")
print("    x    order x²   order x³      exact")
for x in (0.01, 0.05, 0.1, 0.2, 1.0):
    leading, following = (
        float(mutual_information(x, first=1, second=1, order=order))
        for order in ("leading", "next")
    )
    exact = ScaleMixture.lognormal(x).mutual_information(1, 1)
    print(f"{x:5.2f}  {leading:10.3e} {following:10.3e} {exact:10.3e}")

print("\nDepth over width r* = L/n at which the series has its maximum, ten outputs")
print("activation   nu      r*     depth at width 100   r* with skip 0.9 (as printed)")
for name in ("tanh", "gelu", "relu"):
    plain, skip = optimal_aspect_ratio(name, 10), optimal_aspect_ratio(name, 10, skip=0.9)
    book = optimal_aspect_ratio(name, 10, skip=0.9, vertex="published")
    print(
        f"{name:10} {plain.nu:6.3f}  {plain.r_star:.4f}  {100 * plain.r_star:12.1f}"
        f"          {skip.r_star:.4f} ({book.r_star:.4f})"
    )
print(f"20 layers of width 100, tanh: skip {optimal_skip('tanh', 0.2, 10):.3f} in every block")

print("\nInformation between two inputs at infinite width, layer by layer, tanh")
x = [[1.0, 0.0], [0.6, 0.8]]
for label, C_b, C_W in (("critical", 0.0, 1.0), ("ordered", 0.1, 0.5), ("chaotic", 0.0, 3.0)):
    K = frozen_kernels(MLP([2, *[10] * 9, 1], "tanh", C_b=C_b, C_W=C_W), x).K
    shared = [gaussian_information(K[layer], [0], [1]) for layer in (0, 3, 6, 9)]
    print(f"{label:9} C_b = {C_b}, C_W = {C_W}:", "  ".join(f"{value:.3f}" for value in shared))
