"""The number that fills a tensor: the open seam, and the numbers that come with topos."""
