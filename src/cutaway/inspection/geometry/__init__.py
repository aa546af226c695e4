"""Token vectors as points: neighbours, analogies, projections, ways through the layers."""
