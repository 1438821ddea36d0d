"""Observables of one concrete network: pure functions of its parameters and inputs."""
