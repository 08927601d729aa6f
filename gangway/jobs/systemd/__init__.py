"""A stack's own job on its nodes, from outside: state, sizes, controller, circuit breaker."""
