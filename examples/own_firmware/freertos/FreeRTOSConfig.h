// FreeRTOS for the sample: two tasks, no heap, ticks by SysTick.
#ifndef FREERTOS_CONFIG_H
#define FREERTOS_CONFIG_H

#define configCPU_CLOCK_HZ 25000000
#define configTICK_RATE_HZ 1000
#define configTICK_TYPE_WIDTH_IN_BITS TICK_TYPE_WIDTH_32_BITS
#define configUSE_PREEMPTION 1
#define configUSE_IDLE_HOOK 0
#define configUSE_TICK_HOOK 0
#define configMAX_PRIORITIES 3
#define configMINIMAL_STACK_SIZE 128
#define configTIMER_TASK_STACK_DEPTH \
  configMINIMAL_STACK_SIZE  // it wants to know, without timers too
#define configSUPPORT_STATIC_ALLOCATION 1
#define configSUPPORT_DYNAMIC_ALLOCATION 0
#define configKERNEL_PROVIDED_STATIC_MEMORY 1
#define configCHECK_FOR_STACK_OVERFLOW 0
#define configMAX_SYSCALL_INTERRUPT_PRIORITY 32
#define configKERNEL_INTERRUPT_PRIORITY 255
#define INCLUDE_vTaskDelay 1
#define INCLUDE_vTaskSuspend 1
#define INCLUDE_xTaskGetSchedulerState 1

// The names in startup.c's table of vectors.
#define vPortSVCHandler svc_handler
#define xPortPendSVHandler pendsv_handler
#define xPortSysTickHandler systick_handler

#endif
