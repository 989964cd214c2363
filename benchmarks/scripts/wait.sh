# A worker without torch: it writes down the world it is in, and waits.
echo "$WORLD_SIZE" > "$BENCH_TRACE/$$.world"
exec sleep 100000
