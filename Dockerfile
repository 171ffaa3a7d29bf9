# The package with everything it needs, for a CPU or a CUDA device.
#
#   docker build -t regard .
#   docker build -t regard:cuda --build-arg TORCH=https://download.pytorch.org/whl/cu130 .
#   docker run --rm regard translate "Good morning."
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" regard train language corpus.txt
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" --gpus all regard:cuda train language corpus.txt
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" regard look "a text" -m runs/language-1 --export page.html
FROM python:3.11-slim-trixie

ARG TORCH=https://download.pytorch.org/whl/cpu

# Compiled models, and the kernels of Triton on CUDA, need a compiler when they run; any version of it does.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN pip install --no-cache-dir -c constraints.txt --extra-index-url "$TORCH" torch
COPY regard ./regard
RUN pip install --no-cache-dir -c constraints.txt . && rm -rf /src/*

# With --user, files that are written into a mounted folder belong to the user of the host, who has no name and no home
# here. Programs look for both.
RUN useradd --uid 1000 --create-home user && mkdir /work && chmod 1777 /home/user /work
ENV HOME=/home/user USER=user NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
WORKDIR /work
ENTRYPOINT ["regard"]
CMD ["--help"]
