# syntax=docker/dockerfile:1
# An image of `draftwood serve`; docs/serving.md says how to run it. Checked by a linter, not built yet.
#
#   docker build -t draftwood .
#   docker build -t draftwood:cuda --build-arg TORCH_INDEX=ADDRESS_OF_A_CUDA_INDEX_OF_PYTORCH .

ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim

# Draftwood compiles its kernels for the processor that it finds, and Triton its launchers for a GPU.
# Debian's release fixes the compiler's version.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

# The wheels of a CUDA version bring its libraries, so that the base image needs none.
ARG TORCH=2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=serve
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /wheels
# Each build of torch asks for a Triton of its own.
RUN sed -i '/^triton==/d' /tmp/constraints.txt \
    && pip install --no-cache-dir "torch==${TORCH}" --index-url "${TORCH_INDEX}" \
    && set -- /wheels/*.whl \
    && pip install --no-cache-dir -c /tmp/constraints.txt "${1}[${EXTRAS}]" \
    && rm -r /wheels /tmp/constraints.txt

RUN useradd --uid 10001 --create-home draftwood && install -d -o draftwood /cache
USER 10001
WORKDIR /home/draftwood
ENV DRAFTWOOD_CACHE=/cache/draftwood HF_HOME=/cache/huggingface PYTHONUNBUFFERED=1
VOLUME /cache

EXPOSE 8000
# Green once requests are decoded, red while the server drains. Loading a model takes minutes.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["draftwood", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["embedded"]
