# The operator's image: both programs, static, and nothing else that runs.
FROM golang:1.26 AS builder
WORKDIR /src
# The modules first, so that a change of code doesn't download them again.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS=linux TARGETARCH VERSION COMMIT
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X example.com/memcached-operator/version.Version=$VERSION \
      -X example.com/memcached-operator/version.Commit=$COMMIT" -o /out/ ./cmd/manager ./cmd/drainer

FROM gcr.io/distroless/static:nonroot
COPY --from=builder /out/manager /out/drainer /
USER 65532:65532
ENTRYPOINT ["/manager"]
