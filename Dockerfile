# The image holds two files: the program, linked statically, and the CA certificates that an https upstream is checked with.
# Both base images can be replaced, for a registry of one's own or for a build without any:
#   docker build --build-arg BUILDER_IMAGE=… --build-arg RUNTIME_IMAGE=… .
# The release in BUILDER_IMAGE is the one that rust-toolchain.toml and Cargo.toml name.
ARG BUILDER_IMAGE=rust:1.95.0-bookworm
ARG RUNTIME_IMAGE=scratch

FROM ${BUILDER_IMAGE} AS builder
WORKDIR /src
# glibc, linked statically: works in an empty root, DNS included. The explicit --target below keeps the flag away from
# procedural macros, which cannot be linked that way.
ENV RUSTFLAGS="-C target-feature=+crt-static"

# Dependencies alone, so that a change of the sources does not compile them again. What is declared beside the library and
# the program (benches, examples, tests) is taken out of this layer's manifest, because its files are not there yet.
COPY Cargo.toml Cargo.lock rust-toolchain.toml ./
RUN cp Cargo.toml Cargo.toml.whole \
    && awk '/^\[\[(bench|example|test)\]\]/ { skip = 1; next } /^\[/ { skip = 0 } !skip' Cargo.toml.whole > Cargo.toml \
    && mkdir src && echo 'fn main() {}' > src/main.rs && touch src/lib.rs \
    && cargo build --release --locked --bin okapi-auth-sidecar --target "$(rustc --print host-tuple)" \
    && rm -r src Cargo.toml.whole

COPY src src
# cargo goes by time, and the files just copied are older than what was built from the empty ones.
RUN find src -name '*.rs' -exec touch {} + \
    && target="$(rustc --print host-tuple)" \
    && cargo build --release --locked --bin okapi-auth-sidecar --target "$target" \
    && install -D "target/$target/release/okapi-auth-sidecar" /out/okapi-auth-sidecar

FROM ${RUNTIME_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="okapi-auth-sidecar" \
      org.opencontainers.image.description="A cache of decisions in front of FOLIO's mod-authtoken" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=builder /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=builder /out/okapi-auth-sidecar /okapi-auth-sidecar
# A number, because kubelet cannot verify of a name that it is not root.
USER 65532:65532
EXPOSE 8071 8072
HEALTHCHECK --interval=10s --timeout=3s --start-period=2s --retries=3 CMD ["/okapi-auth-sidecar", "healthcheck"]
ENTRYPOINT ["/okapi-auth-sidecar"]
