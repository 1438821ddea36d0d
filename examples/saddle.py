"""How long a small network stays on its plateau: it is the small layers that count."""

from dynagram.theory.saddle import SymmetricNetwork, escape_times

print("layers at 0.02 of 4   leading  next order      exact")
exact = {}
for r in (2, 3, 4):
    network = SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.02, bottleneck=r)
    found = escape_times(network, threshold=0.3)
    exact[r] = found.ode
    print(f"{r:19d} {found.leading:9.3f} {found.next_to_leading:11.3f} {found.ode:10.3f}")

assert exact[2] < exact[3] < exact[4]
