"""Write a plan into a new model: order, anchors, guards and If branches."""
