#!/bin/sh
# A task in steps: after each step it commits a state. Another attempt continues after the last one.
#
#   starling submit --wait --retries 3 -- sh $PWD/examples/spawn/steps.sh 5
set -e
last=$1 done=0
if [ -n "$STARLING_STATE" ]; then
  done=$(cat "$STARLING_STATE")
fi
while [ "$done" -lt "$last" ]; do
  step=$((done + 1))
  starling spawn --key "step-$step" -- echo "step $step"
  starling await "$done"
  done=$step
  echo "$done" | starling commit --state -
done
