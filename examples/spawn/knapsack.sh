#!/bin/sh
# A knapsack by branch and bound: each task decides about one item, and stops where no choice of the
# rest beats the best value that any task has found.
#
#   starling up --nodes 2 --slots 2
#   starling submit --wait --var best=max:0 --var visited=sum -- sh $PWD/examples/spawn/knapsack.sh
#   starling var get --job last best     # 51
#   starling job info last               # also the number of tasks that were visited
#
# The arguments are those of a child: the next item, the value so far, the room left, the items.
set -e
item=${1:-0} value=${2:-0} room=${3:-26} items=${4:-}
weights="12 7 11 8 9 6" values="24 13 23 15 16 11"
nth() { shift "$(($1 + 1))"; echo "$1"; }

starling var add visited 1
bound=$value at=0
for one in $values; do
  [ "$at" -lt "$item" ] || bound=$((bound + one))
  at=$((at + 1))
done
# On a line of its own: with `set -e` a refused call fails the task, and does not prune.
best=$(starling var get best)
[ "$bound" -gt "$best" ] || exit 0
starling var set best "$value" --witness "$items"
[ "$item" -lt "$at" ] || exit 0
weight=$(nth "$item" $weights)
next=$((item + 1))
if [ "$weight" -le "$room" ]; then
  more=$((value + $(nth "$item" $values)))
  starling spawn --key take -- sh "$0" "$next" "$more" "$((room - weight))" "$items $item"
fi
starling spawn --key leave -- sh "$0" "$next" "$value" "$room" "$items"
