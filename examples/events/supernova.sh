#!/bin/sh
# Supernova detection in the shape of the paper on Constellation: a master sends pairs of images of
# one part of the sky to activities, and collects the candidates that they find.
#
#   starling up --nodes 2 --slots 2
#   starling submit --wait -- sh $PWD/examples/events/supernova.sh 12
#   starling job output last
#
# An activity aligns two images, subtracts them, and reports the pixels that differ. The images are
# made from their numbers, so the example needs no data: one pair in three has a supernova. An
# activity waits for its next pair without a slot, and ends when it is told to.
set -e
role=${1:-12}

# Makes one image: brightness by pixel. $1: the pair, $2: 0 before, 1 after.
image() {
  pixel=0
  while [ "$pixel" -lt 20 ]; do
    light=$((($1 * 31 + pixel * 17) % 50))
    if [ "$2" = 1 ] && [ $(($1 % 3)) = 0 ] && [ "$pixel" = $(($1 % 20)) ]; then
      light=$((light + 100))
    fi
    echo "$pixel $light"
    pixel=$((pixel + 1))
  done
}

if [ "$role" = activity ]; then
  while true; do
    pair=$(starling event recv --from parent --raw)
    [ "$pair" != end ] || exit 0
    image "$pair" 0 > "$TMPDIR/before"
    image "$pair" 1 > "$TMPDIR/after"
    found=$(diff "$TMPDIR/before" "$TMPDIR/after" | sed -n 's/^> \([0-9]*\) .*/\1/p' | tr '\n' ' ')
    starling event send parent --data "$pair ${found:-none}"
  done
fi

pairs=$role activities=3
starling spawn --key activities --array "1-$activities" -- sh "$0" activity > /dev/null
# The state: the pairs that are out, and the answers so far.
state=$(cat "${STARLING_STATE:-/dev/null}")
next=${state%%;*} answers=${state#*;}
if [ -z "$state" ]; then
  next=0 answers=
  while [ "$next" -lt "$activities" ]; do
    starling event send "$next" --data "$next"
    next=$((next + 1))
  done
fi
count=$(printf %s "$answers" | tr -cd '/' | wc -c)
while [ "$count" -lt "$pairs" ]; do
  line=$(printf '%s;%s' "$next" "$answers" | starling event recv --state -)
  from=${line%% *} answers="$answers${line#* }/" count=$((count + 1))
  if [ "$next" -lt "$pairs" ]; then
    starling event send "$from" --data "$next"
    next=$((next + 1))
  fi
done
child=0
while [ "$child" -lt "$activities" ]; do
  starling event send "$child" --data end
  child=$((child + 1))
done
starling await > /dev/null
printf %s "$answers" | tr '/' '\n' | sort -n
