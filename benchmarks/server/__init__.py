"""A server to measure from outside, and the clients that visit it."""
