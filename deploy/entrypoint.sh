#!/bin/sh
# Runs unbayes with the password of the database from a secret, which neither a command line nor the folder of
# the ledger then has.
secret=/run/secrets/database_password
if [ -r "$secret" ]; then
    PGPASSWORD="$(cat "$secret")"
    export PGPASSWORD
fi
exec unbayes "$@"
