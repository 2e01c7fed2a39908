#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The chassis of a simulated IPMI board: chassis.sh FILE ... get|set power [0|1]
# FILE has the true power of the machine, on or off. ipmi_sim puts words of its own in between.
file=$1
shift
while [ $# -gt 0 ]; do
  case "$1 $2" in
    "get power") if [ "$(cat "$file")" = on ]; then echo power:1; else echo power:0; fi; exit 0 ;;
    "set power") if [ "$3" = 1 ]; then printf on > "$file"; else printf off > "$file"; fi; exit 0 ;;
  esac
  shift
done
exit 0
