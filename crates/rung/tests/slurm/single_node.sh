#!/bin/bash
# Runs Slurm on one machine, for tests: munge, one controller and one node, all as the calling user, on the loopback address, with all
# files in one directory. The daemons do not fork, so the process ids in the directory are theirs; processes are killed by id, never by name.
#
#   single_node.sh check            exits with 0 if Slurm is installed
#   single_node.sh start DIR        creates DIR, starts the daemons, and waits for the node; SLURM_CONF=DIR/slurm.conf then selects them
#   single_node.sh controller DIR   restarts the controller after it was killed
#   single_node.sh stop DIR         stops the daemons, controller first; the logs stay
#
# DIR must be short (a socket's name has at most 107 bytes) and new.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

check() {
    local program
    for program in munged mungekey slurmctld slurmd sbatch squeue scontrol scancel; do
        command -v "$program" >/dev/null || { echo "found no $program"; return 1; }
    done
}

# Prints a free port.
port() {
    local port
    while port=$((20000 + RANDOM % 12000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "$port"
}

# Waits until a command succeeds; after half a minute prints the logs and fails.
until_true() {
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "gave up waiting for: $*" >&2
    tail -n 20 "$dir"/*.log >&2 || true
    return 1
}

configure() {
    local me host
    me=$(id -un)
    host=$(hostname -s)
    cat >"$dir/slurm.conf" <<CONF
ClusterName=rung
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(port)
SlurmdPort=$(port)
SlurmUser=$me
SlurmdUser=$me
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits until its credential expires, so credentials expire soon.
AuthInfo=socket=$dir/munge.socket,cred_expire=5
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.own.pid
SlurmdPidFile=$dir/slurmd.own.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
JobRequeue=1
ReturnToService=2
KillWait=5
MessageTimeout=5
# A short timeout makes the node report finished tasks soon after the controller restarts.
SlurmdTimeout=15
MaxArraySize=33
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
NodeName=here NodeHostname=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=here Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
CONF
}

# Starts a daemon and writes its process id to a file.
daemon() {
    local name=$1
    shift
    "$@" >>"$dir/$name.out.log" 2>&1 </dev/null &
    echo $! >"$dir/$name.pid"
}

controller() {
    daemon slurmctld slurmctld -D
    until_true scontrol ping
    until_true bash -c 'scontrol ping | grep -q UP'
}

start() {
    mkdir -m 700 "$dir"
    mkdir -m 700 "$dir/state" "$dir/spool"
    configure
    mungekey --create --keyfile "$dir/munge.key"
    daemon munged munged --foreground --force --num-threads 2 --key-file "$dir/munge.key" --socket "$dir/munge.socket" \
        --pid-file "$dir/munged.own.pid" --log-file "$dir/munged.log" --seed-file "$dir/munge.seed"
    until_true test -S "$dir/munge.socket"
    controller
    daemon slurmd slurmd -D -N here
    until_true bash -c 'sinfo -h -o %t | grep -qx idle'
}

stop() {
    local name id tries
    for name in slurmctld slurmd munged; do
        id=$(cat "$dir/$name.pid" 2>/dev/null) || continue
        kill "$id" 2>/dev/null || continue
        for ((tries = 0; tries < 100; tries++)); do
            kill -0 "$id" 2>/dev/null || break
            sleep 0.1
        done
        kill -9 "$id" 2>/dev/null || true
    done
}

dir=${2:-}
export SLURM_CONF=$dir/slurm.conf
case ${1:-} in
check) check ;;
start | controller | stop)
    [[ -n $dir ]] || { echo "single_node.sh $1: expected a directory" >&2; exit 2; }
    "$1"
    ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
