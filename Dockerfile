# syntax=docker/dockerfile:1
# Node 24 needs glibc 2.38 for the µWS binaries: Debian 13 has 2.41.
FROM node:24-trixie-slim AS build
WORKDIR /src
COPY package.json package-lock.json tsconfig.json ./
COPY scripts ./scripts
COPY src ./src
RUN npm ci && npm prune --omit=dev --ignore-scripts
# Binaries of other systems and of other Node versions: 240 MB that never load.
RUN find node_modules/uWebSockets.js -name 'uws_*.node' ! -name "uws_linux_$(node -p process.arch)_$(node -p process.versions.modules).node" -delete

FROM node:24-trixie-slim
ENV NODE_ENV=production \
    TOLLGATE_HOST=0.0.0.0 \
    TOLLGATE_ADMIN_HOST=127.0.0.1 \
    TOLLGATE_DATA=/var/lib/tollgate
WORKDIR /opt/tollgate
COPY --from=build /src/package.json ./
COPY --from=build /src/node_modules ./node_modules
COPY --from=build /src/dist ./dist
RUN install -d -o 65532 -g 65532 /var/lib/tollgate /etc/tollgate
USER 65532:65532
WORKDIR /etc/tollgate
VOLUME /var/lib/tollgate
EXPOSE 8080
ENTRYPOINT ["node", "/opt/tollgate/dist/cli/main.js"]
CMD ["serve"]
