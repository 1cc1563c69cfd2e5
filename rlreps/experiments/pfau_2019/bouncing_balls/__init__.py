"""Video of bouncing balls: deep slow feature analysis against linear."""
