"""A stack's own job seen from outside: state, sizes, controller, circuit breaker."""
