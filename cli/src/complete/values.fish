function __starling_values
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    if test -z "$current"
        set current ''
    end
    $before[1] complete -- $before[2..-1] $current 2>/dev/null
end

complete -c starling -k -a '(__starling_values)'
