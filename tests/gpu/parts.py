"""All parts, the quick ones first."""

from tests.gpu import ends, sights, states, worlds

PARTS = (*worlds.PARTS, *ends.PARTS, *sights.PARTS, *states.PARTS)
