#!/bin/sh
# Ping-pong of two activities: a task and its child send each other a number, one higher each time.
#
#   starling up --nodes 1 --slots 1
#   starling submit --wait -- sh $PWD/examples/events/ping.sh 10
#   starling job output last       # the last line is: 10
#
# Neither holds a slot while it waits, so both live on one slot. The state of each is the last
# number that it has sent, so both may be killed at any time.
set -e
last=${1:-10} peer=${2:-}
sent=$(cat "${STARLING_STATE:-/dev/null}")
if [ -z "$peer" ]; then
  peer=$(starling spawn --key pong -- sh "$0" "$last" parent)
  if [ -z "$sent" ]; then
    sent=1
    starling event send "$peer" --data 1
  fi
fi
while [ "${sent:-0}" -lt "$last" ]; do
  number=$(echo "$sent" | starling event recv --from "$peer" --raw --state -)
  [ "$number" -lt "$last" ] || break
  sent=$((number + 1))
  starling event send "$peer" --data "$sent"
done
echo "$last"
