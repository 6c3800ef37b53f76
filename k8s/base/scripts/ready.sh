#!/usr/bin/env bash
# Readiness of a worker pod: the proxy on this node takes requests, and the service behind it generates a token.
set -euo pipefail
url=${OUTRIDER_URL:-http://127.0.0.1:8000}
keys=${OUTRIDER_KEYS:-/etc/outrider/keys/api_keys}

# Fails while the proxy is drained, so that no new connection comes here.
curl --fail --silent --show-error --max-time 3 --output /dev/null "$url/-/healthz"

# Through standard input: what stands on a command line can be seen in the process list.
key=$(grep --max-count=1 --extended-regexp '^[^#[:space:]]' "$keys")
printf 'authorization: Bearer %s\n' "$key" |
    curl --fail --silent --show-error --max-time 16 --output /dev/null --header @- "$url/ready"
