#!/usr/bin/env bash
# Waits until the prefetch Job has completed every model of the list, so that no replica reads half a model.
set -euo pipefail
models=${MODELS_FOLDER:-/models}
list=${MODELS_LIST:-/etc/outrider/models/models.txt}

while read -r repository commit _; do
    case $repository in '' | '#'*) continue ;; esac
    until [ -e "$models/${repository##*/}/$commit/.complete" ]; do
        echo "waiting for $repository at $commit"
        sleep 5
    done
done < "$list"
