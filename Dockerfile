# A Moot gateway: small, without root, on a read-only root file system.
#
#   docker build -t moot .
#   docker run --rm --init --read-only --tmpfs /tmp --cap-drop ALL -p 127.0.0.1:8080:8080 \
#     -v ./moot.yaml:/etc/moot/moot.yaml:ro -v moot-data:/var/lib/moot moot
#
# `compose.yaml` says the same; docs/how-to/run-a-gateway.md explains it.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim-bookworm AS build
# The compiler builds the fast path and stays behind in this stage.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src ./src
# Optional parts, such as "[xprotocol]"; none by default.
ARG EXTRAS=""
# No pip in the image: it is the build stage's own that installs.
RUN python -m venv --without-pip /opt/moot \
    && python -m pip --python /opt/moot/bin/python install --no-cache-dir ".${EXTRAS}" \
    && /opt/moot/bin/python -c "from moot.gateway.hosting.fast_path import COMPILED; assert COMPILED"

FROM python:${PYTHON}-slim-bookworm
COPY --from=build /opt/moot /opt/moot
COPY deploy/docker/healthcheck.py /opt/moot/healthcheck.py
# A number of its own, so that Kubernetes sees that it is not root, and a new volume belongs to it.
RUN groupadd --gid 10001 moot \
    && useradd --uid 10001 --gid moot --no-log-init --no-create-home \
        --home-dir /var/lib/moot --shell /usr/sbin/nologin moot \
    && install --directory --owner moot --group moot --mode 0700 /var/lib/moot \
    && install --directory --mode 0755 /etc/moot
ENV PATH=/opt/moot/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/moot
# Journal, snapshots and generated tokens. Nothing else is written but /tmp.
VOLUME ["/var/lib/moot"]
EXPOSE 8080
HEALTHCHECK --interval=15s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "/opt/moot/healthcheck.py"]
ENTRYPOINT ["moot"]
CMD ["serve", "/etc/moot/moot.yaml", "--host", "0.0.0.0", "--data", "/var/lib/moot"]
