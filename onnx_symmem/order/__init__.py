"""Find the execution order with the least symbolic peak, and prove that it is never worse."""
