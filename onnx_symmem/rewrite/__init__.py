"""Write a plan into a new model: the order of its nodes, and all dims."""
