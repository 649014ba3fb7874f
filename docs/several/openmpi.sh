#!/bin/bash
# bash openmpi.sh, on the first host of hosts.txt: Open MPI says where it was started, and process 0 must be there.
# --bind-to none: else Open MPI holds a process to one core.
set -euo pipefail
case "$(mpirun --version)" in
    *"Open MPI) 4."*)
        mpirun --hostfile hosts.txt -np 4 --map-by node --bind-to none python several.py packed draws
        ;;
    *) # Open MPI 5 and other kinds of MPI do not say where the first process is
        first="$(hostname):4321"
        mpirun --hostfile hosts.txt -np 4 --map-by node --bind-to none bash -c "
            exec env TALLCHAIN_LAUNCHED=$first,\${OMPI_COMM_WORLD_SIZE:-\$PMI_SIZE},\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK} \
                python several.py packed draws"
        ;;
esac
