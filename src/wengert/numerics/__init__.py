"""What `wg.ode` and `wg.optimize` share: containers as one vector, functions as programs, zeros and their derivatives."""
