#!/bin/sh
# A cluster of one machine, in the foreground: Ctrl-C stops this cluster and no other. Further options go to `ray start`.
# The dashboard listens on loopback alone, and whoever uses the cluster must hold the token in ~/.ray/auth_token.
set -eu
PATH=$(dirname "$0")/../.venv/bin:$PATH
export PATH RAY_AUTH_MODE=token
ray get-auth-token --generate > /dev/null
exec ray start --head --block --node-ip-address=127.0.0.1 --dashboard-host=127.0.0.1 --disable-usage-stats "$@"
