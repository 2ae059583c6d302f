#!/bin/sh
# fib by commands: each task spawns two tasks, awaits them, and adds their results.
#
#   starling up --nodes 1 --slots 1
#   starling submit --wait -- sh $PWD/examples/spawn/fib.sh 7 /tmp/fib
#   cat /tmp/fib
#
# The results are files that all tasks see. The keys make a second attempt of a task find its
# children again.
set -e
n=$1 out=$2
[ ! -s "$out" ] || exit 0 # An earlier attempt has written it.
if [ "$n" -lt 2 ]; then
  echo "$n" > "$out.new" && mv "$out.new" "$out"
  exit 0
fi
starling spawn --key left -- sh "$0" $((n - 1)) "$out.left"
starling spawn --key right -- sh "$0" $((n - 2)) "$out.right"
starling await > "$out.verdicts"
echo $(($(cat "$out.left") + $(cat "$out.right"))) > "$out.new"
mv "$out.new" "$out"
rm "$out.left" "$out.right" "$out.verdicts"
