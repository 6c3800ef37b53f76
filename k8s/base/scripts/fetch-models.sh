#!/usr/bin/env bash
# Fetches every model of the list at its commit into a folder of its own: MODELS/NAME/COMMIT. What is complete is skipped.
set -euo pipefail
models=${MODELS_FOLDER:-/models}
list=${MODELS_LIST:-/etc/outrider/models/models.txt}

while read -r repository commit _; do
    case $repository in '' | '#'*) continue ;; esac
    folder=$models/${repository##*/}/$commit
    if [ ! -e "$folder/.complete" ]; then
        # Safetensors only: the server refuses pickles anyway.
        hf download "$repository" --revision "$commit" --local-dir "$folder" --quiet \
            --include '*.safetensors' --include '*.json' --include '*.jinja' --exclude '*/*' < /dev/null
        touch "$folder/.complete"
    fi
    echo "$folder is complete"
done < "$list"
