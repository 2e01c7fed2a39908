#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The chassis of a simulated IPMI board: chassis.sh FILE MODE ... get|set power [0|1]
# FILE has the true power of the machine, on or off; FILE.pid the process of its board. ipmi_sim puts
# words of its own in between. The modes are those of bmc.py.
file=$1
mode=$2
shift 2
looks() { # count the looks since the machine was switched
  looks=$(($(cat "$file.looks" 2>/dev/null || echo 0) + 1))
  echo "$looks" > "$file.looks"
}
while [ $# -gt 0 ]; do
  case "$1 $2" in
    "get power")
      case $mode in
        hangs) sleep 3600 ;;
        late) sleep 3 ;;
        lies) file=$file.claimed; [ -e "$file" ] || file=${file%.claimed} ;;
        slow) [ ! -e "$file.asked" ] || { looks; [ "$looks" -lt 3 ] || printf off > "$file"; } ;;
      esac
      power=$(cat "$file")
      if [ "$mode" = returns ] && [ -e "$file.asked" ]; then printf on > "$file"; fi
      if [ "$power" = on ]; then echo power:1; else echo power:0; fi
      exit 0
      ;;
    "set power")
      if [ "$3" = 1 ]; then to=on; else to=off; fi
      : > "$file.asked"
      case $mode in
        refuses) exit 1 ;;
        lies) printf "$to" > "$file.claimed" ;;
        slow) ;;
        dies) printf "$to" > "$file"; kill -9 "$(cat "$file.pid")" ;;
        *) printf "$to" > "$file" ;;
      esac
      exit 0
      ;;
  esac
  shift
done
exit 0
