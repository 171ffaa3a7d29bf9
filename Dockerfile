# The package with everything it needs, for a CPU or a CUDA device.
#
#   docker build -t regard .
#   docker build -t regard:cuda --build-arg TORCH=https://download.pytorch.org/whl/cu130 .
#   docker run --rm -v "$PWD:/work" regard train language corpus.txt
#   docker run --rm --gpus all -v "$PWD:/work" regard:cuda train language corpus.txt
#   docker run --rm -v "$PWD:/work" regard look "a text" -m runs/mine --export page.html
FROM python:3.11-slim

ARG TORCH=https://download.pytorch.org/whl/cpu

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN version="$(grep '^torch==' constraints.txt)" && pip install --no-cache-dir --index-url "$TORCH" "${version:-torch}"
COPY regard ./regard
RUN pip install --no-cache-dir -c constraints.txt . && rm -rf /src/*

RUN useradd --create-home user
USER user
WORKDIR /work
ENTRYPOINT ["regard"]
CMD ["--help"]
