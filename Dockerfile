# syntax=docker/dockerfile:1
#
# docker build -t tollgate .
#
# Node 24 needs glibc 2.38 for the µWS binaries: Debian 13 has 2.41. Both stages are the same system, so that what the build
# sees loading is what the image needs.
FROM node:24-trixie-slim AS build
WORKDIR /src
COPY package.json package-lock.json tsconfig.json ./
RUN npm ci --ignore-scripts
COPY scripts ./scripts
COPY src ./src
RUN npm run build

FROM node:24-trixie-slim AS modules
# The author's own build of µWebSockets.js in place of the npm package: any package spec, such as
# github:uNetworking/uWebSockets.js#v20.52.0. Git is fetched for that alone.
ARG UWS=
WORKDIR /opt/tollgate
COPY package.json package-lock.json ./
RUN if [ -z "$UWS" ]; then \
      npm ci --omit=dev --ignore-scripts; \
    else \
      apt-get update && apt-get install -y --no-install-recommends ca-certificates git && \
      npm pkg set "dependencies[uWebSockets.js]=$UWS" && npm install --omit=dev --ignore-scripts; \
    fi
# What is inside, with versions, licences and hashes, before anything that no program reads is taken away.
RUN npm pkg delete devDependencies scripts && npm sbom --omit=dev --sbom-format=cyclonedx > /sbom.cdx.json
COPY --from=build /src/dist dist
COPY scripts/slim-image.mjs scripts/licences.mjs /scripts/
RUN node /scripts/licences.mjs /sbom.cdx.json && node /scripts/slim-image.mjs && rm -f package-lock.json node_modules/.package-lock.json

FROM node:24-trixie-slim
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Tollgate" \
      org.opencontainers.image.description="Self-hosted, high-throughput gateway for chat-completion models" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="docker.io/library/node:24-trixie-slim"
# The admin port listens on all addresses, because probes, metrics and a published port come from outside of the container's
# loopback; what changes or shows anything there wants the admin token. It is not published unless asked for.
ENV NODE_ENV=production \
    TOLLGATE_HOST=0.0.0.0 \
    TOLLGATE_ADMIN_HOST=0.0.0.0 \
    TOLLGATE_DATA=/var/lib/tollgate
RUN install -d -o 65532 -g 65532 -m 0700 /var/lib/tollgate && \
    install -d /etc/tollgate && \
    ln -s /opt/tollgate/dist/cli/main.js /usr/local/bin/tollgate
COPY --from=modules /sbom.cdx.json /usr/share/tollgate/sbom.cdx.json
COPY LICENSE /usr/share/tollgate/LICENSE
COPY --from=modules /opt/tollgate /opt/tollgate
USER 65532:65532
# Where tollgate.yaml is looked for; without one the built-in echo model is served.
WORKDIR /etc/tollgate
VOLUME /var/lib/tollgate
EXPOSE 8080 8081
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 CMD ["tollgate", "health"]
ENTRYPOINT ["tollgate"]
CMD ["serve"]
