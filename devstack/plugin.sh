#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# DevStack plugin: mistral-failover in the Mistral that Mistral's own plugin installs. DevStack
# sources this file in every phase, after Mistral's, with the mode and the phase as arguments.

# Install the package where Mistral is, so that its processes find the entry points.
function install_failover {
    setup_develop "$FAILOVER_DIR/agent"
    setup_develop "$FAILOVER_DIR" mysql
}

# Write [failover] into mistral.conf, deny dynamic actions, and create the empty state store; the first action fills it.
function configure_failover {
    local url
    if [[ "$DATABASE_TYPE" != mysql ]]; then
        die $LINENO "mistral-failover needs MySQL, not $DATABASE_TYPE: enable_service mysql"
    fi
    recreate_database "$FAILOVER_DATABASE"
    url=$(database_connection_url "$FAILOVER_DATABASE")
    # Without DevStack's options: its character set is not that of the state store.
    iniset "$MISTRAL_CONF_FILE" failover database "${url%%\?*}"
    # No Python code through the API: it would run with the secrets of every project in reach.
    iniset "$MISTRAL_CONF_FILE" action_providers denylist dynamic
    if [[ -n "$FAILOVER_COMMAND_CHANNEL" ]]; then
        iniset "$MISTRAL_CONF_FILE" failover command_channel "$FAILOVER_COMMAND_CHANNEL"
        iniset "$MISTRAL_CONF_FILE" failover agent_key_file "$FAILOVER_AGENT_KEY_FILE"
        if [[ ! -s "$FAILOVER_AGENT_KEY_FILE" ]]; then
            (umask 077 && openssl rand -hex 32 > "$FAILOVER_AGENT_KEY_FILE")
        fi
    fi
}

# Mistral's plugin has loaded the workflows and started its processes by now.
function start_failover {
    run_process failover-periodic \
        "$MISTRAL_BIN_DIR/mistral-server --server periodic --config-file $MISTRAL_CONF_FILE"
}

function stop_failover {
    stop_process failover-periodic
}

function cleanup_failover {
    sudo rm -f "$FAILOVER_AGENT_KEY_FILE"
}

FAILOVER_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if is_service_enabled mistral; then
    case "$1 ${2:-}" in
        "stack install")
            echo_summary "Installing mistral-failover"
            install_failover
            ;;
        "stack post-config")
            echo_summary "Configuring mistral-failover"
            configure_failover
            ;;
        "stack extra")
            echo_summary "Starting mistral-failover"
            start_failover
            ;;
        unstack*)
            stop_failover
            ;;
        clean*)
            cleanup_failover
            ;;
    esac
fi
