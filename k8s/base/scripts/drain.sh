#!/usr/bin/env bash
# Runs before a worker pod is stopped. Ray Serve starts replacements on other nodes, sends new requests there, and stops
# the replicas here when their streams have ended; then this script ends, and Kubernetes stops Ray.
set -uo pipefail
deadline_s=${DRAIN_DEADLINE_S:-1200}
processes=${PROC_FOLDER:-/proc}

# Without a head there is nobody to move anything.
timeout 60 ray drain-node --reason DRAIN_NODE_REASON_PREEMPTION --reason-message "the pod is being stopped" \
    --deadline-remaining-seconds "$deadline_s" || exit 0

# So are the processes of Serve's replicas and proxies named. The pattern does not match itself in grep's own command line.
while grep --quiet --no-messages --text 'ray::\(ServeReplica\|ProxyActor\)' "$processes"/[0-9]*/cmdline; do
    [ "$SECONDS" -lt "$deadline_s" ] || exit 0
    sleep 2
done
