# Runs a PostgreSQL server for as long as somebody holds the other end of standard
# input.  Arguments: the cluster's directory, then the server's command line.
# At the end of input the server is stopped and the directory removed; after a line
# "keep" it is stopped and the directory stays.
dir=$1
shift
exec 3<&0 </dev/null

"$@" 3<&- &
server=$!

(
	order=
	read -r order <&3
	if [ "$order" = keep ]; then : >"$dir/keep"; fi
	# SIGQUIT is PostgreSQL's immediate shutdown: no checkpoint, nobody waited for. A
	# server that is just starting may not have its handler yet, and a shell's
	# background jobs ignore the signal until then: so more than once.
	while [ ! -e "$dir/exited" ]; do
		kill -QUIT "$server" 2>/dev/null
		sleep 0.02
	done
) &
watcher=$!
exec 3<&-

wait "$server"
echo "$?" >"$dir/exited"
wait "$watcher"
if [ ! -e "$dir/keep" ]; then
	cd /
	rm -rf -- "$dir"
fi
exit 0
